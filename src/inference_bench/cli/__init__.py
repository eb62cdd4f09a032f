"""The command line: parse, make one call, report. No arithmetic."""
