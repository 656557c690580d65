"""What happened and what was used, behind small store protocols."""
