"""td.compile: functions become programs."""
