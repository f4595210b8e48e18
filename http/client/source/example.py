"""A worker that answers, and an asker: python3 example.py worker | asker N."""
