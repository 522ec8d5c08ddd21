"""``weft report``: what the wide-area experiments say, on one page with pictures."""
