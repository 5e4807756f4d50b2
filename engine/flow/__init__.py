"""The stages joined. Start with `engine.flow.engine`."""
