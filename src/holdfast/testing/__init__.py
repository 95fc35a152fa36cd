"""Tools for testing what is built on Holdfast, and Holdfast itself: the store suite, the crash laboratory, real servers."""
