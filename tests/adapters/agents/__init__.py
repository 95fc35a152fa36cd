"""Agents as real processes, and what they leave behind."""
