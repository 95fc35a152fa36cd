"""Git as the place of checkpoints: the workspace as a commit, milestones, sidecars, and finding them again."""
