"""Decisions of a scheduler after the fact: tables of records, and their replay against another configuration."""
