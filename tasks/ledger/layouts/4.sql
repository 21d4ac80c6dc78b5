CREATE TABLE joined (                             -- ledgers whose rows are here
    key_fingerprint TEXT PRIMARY KEY,
    path TEXT NOT NULL,
    joined_at TEXT NOT NULL
);
CREATE TABLE joined_runs (                        -- runs whose files have digests of theirs
    run_id TEXT PRIMARY KEY,
    key_fingerprint TEXT NOT NULL
);
CREATE TABLE joined_to (                          -- where the rows of this one are
    path TEXT NOT NULL,
    key_fingerprint TEXT NOT NULL
);
