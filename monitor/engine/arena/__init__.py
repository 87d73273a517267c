"""Arenas: tasks whose models are compared in pairs, by humans and by a judge model."""
