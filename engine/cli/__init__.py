"""The command `engine`: one file a subcommand, imported only when it is called."""
