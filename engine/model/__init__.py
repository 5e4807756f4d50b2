"""The words of the engine as frozen values: standard library and numpy only, no behaviour that needs the outside."""
