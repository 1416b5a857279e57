"""How fast a candidate is: timed in pairs with a baseline, bounded by the judge's own clock."""
