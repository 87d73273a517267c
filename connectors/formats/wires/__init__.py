"""The formats of records: Blindsight's own fields, mapped fields, and the events of serving stacks."""
