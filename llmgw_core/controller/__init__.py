"""The loop that compares desired with observed and acts."""
