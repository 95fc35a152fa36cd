"""Agents as processes: started on record, listened to, and ended with everything they started."""
