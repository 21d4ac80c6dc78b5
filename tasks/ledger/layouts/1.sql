CREATE TABLE ledger (key_fingerprint TEXT NOT NULL);
CREATE TABLE datasets (
    name TEXT PRIMARY KEY,
    cap TEXT                  -- bounded zCDP rho as p/q; null: the ledger's own
);
CREATE TABLE inputs (
    digest TEXT PRIMARY KEY,
    dataset TEXT NOT NULL REFERENCES datasets (name)
);
CREATE TABLE published (
    run_id TEXT NOT NULL,
    name TEXT NOT NULL,
    digest TEXT NOT NULL,
    PRIMARY KEY (run_id, name)
);
CREATE TABLE draws (
    run_id TEXT NOT NULL,
    name TEXT NOT NULL,
    dataset TEXT NOT NULL REFERENCES datasets (name),
    product TEXT NOT NULL,
    mechanism TEXT NOT NULL,
    definition TEXT NOT NULL,
    parameter TEXT NOT NULL,
    neighbors TEXT NOT NULL,
    delta TEXT NOT NULL,
    bounded_factor TEXT NOT NULL,
    bounded_rho TEXT NOT NULL,
    inputs TEXT NOT NULL,
    charged_at TEXT NOT NULL,
    PRIMARY KEY (run_id, name)
);
