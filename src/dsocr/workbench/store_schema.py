"""The tables of a corrections file, and how older ones become these."""

VERSION = 4
TABLES = """
CREATE TABLE page (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, image TEXT NOT NULL, width INTEGER NOT NULL,
    height INTEGER NOT NULL, writer TEXT, document TEXT, markup TEXT,
    elements TEXT NOT NULL DEFAULT '[]', regions TEXT);
CREATE TABLE region (number INTEGER PRIMARY KEY AUTOINCREMENT, page INTEGER NOT NULL REFERENCES page,
    outline TEXT NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL, element INTEGER, version INTEGER NOT NULL);
CREATE TABLE line (number INTEGER PRIMARY KEY AUTOINCREMENT, page INTEGER NOT NULL REFERENCES page, place REAL NOT NULL,
    outline TEXT NOT NULL, text TEXT NOT NULL, state TEXT NOT NULL, machine TEXT, characters TEXT NOT NULL,
    confidence REAL, version INTEGER NOT NULL, elements TEXT NOT NULL DEFAULT '[]',
    author TEXT NOT NULL DEFAULT '', reviewed_at TEXT NOT NULL DEFAULT '', checked_by TEXT NOT NULL DEFAULT '',
    note TEXT NOT NULL DEFAULT '', region INTEGER);
CREATE INDEX line_of_page ON line (page, place);
CREATE TABLE change (number INTEGER PRIMARY KEY, at TEXT NOT NULL, who TEXT NOT NULL, what TEXT NOT NULL,
    before TEXT NOT NULL, after TEXT NOT NULL, undone INTEGER NOT NULL DEFAULT 0,
    regions_before TEXT NOT NULL DEFAULT '[]', regions_after TEXT NOT NULL DEFAULT '[]');
CREATE TABLE stamp (number INTEGER PRIMARY KEY AUTOINCREMENT);
CREATE TABLE setting (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE person (id TEXT PRIMARY KEY, name TEXT NOT NULL);
"""
FROM_VERSION = {
    1: """
ALTER TABLE page ADD COLUMN markup TEXT;
ALTER TABLE line ADD COLUMN elements TEXT NOT NULL DEFAULT '[]';
""",
    2: """
ALTER TABLE line ADD COLUMN author TEXT NOT NULL DEFAULT '';
ALTER TABLE line ADD COLUMN reviewed_at TEXT NOT NULL DEFAULT '';
ALTER TABLE line ADD COLUMN checked_by TEXT NOT NULL DEFAULT '';
ALTER TABLE line ADD COLUMN note TEXT NOT NULL DEFAULT '';
CREATE TABLE person (id TEXT PRIMARY KEY, name TEXT NOT NULL);
""",
    3: """
ALTER TABLE line ADD COLUMN region INTEGER;
ALTER TABLE change ADD COLUMN regions_before TEXT NOT NULL DEFAULT '[]';
ALTER TABLE change ADD COLUMN regions_after TEXT NOT NULL DEFAULT '[]';
ALTER TABLE page ADD COLUMN elements TEXT NOT NULL DEFAULT '[]';
ALTER TABLE page ADD COLUMN regions TEXT;
CREATE TABLE region (number INTEGER PRIMARY KEY AUTOINCREMENT, page INTEGER NOT NULL REFERENCES page,
    outline TEXT NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL, element INTEGER, version INTEGER NOT NULL);
UPDATE page SET elements = (SELECT json_group_array(DISTINCT one.value) FROM line, json_each(line.elements) AS one
    WHERE line.page = page.number);
""",
}
"""What brings the tables of an older version to those of the next."""
