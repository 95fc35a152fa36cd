"""The main job, proved from outside: real projects, real agents, real kills, and what is left afterwards."""
