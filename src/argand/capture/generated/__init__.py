"""capture.generated: what compiled functions call when they run; restored captures need no more than this."""
