"""Say what is wrong with rules, playbooks and settings before they are used."""
