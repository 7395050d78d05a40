"""What earlier runs found out, kept in a folder of the user's."""
