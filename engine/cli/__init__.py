"""The command `engine`: one file a subcommand, imported only when it is called."""

HELP = {"help_option_names": ["-h", "--help"]}
"""Of every command, so that each has the same options however it is reached."""
