"""A grammar of short training programs that try to make the migrator write something wrong."""
