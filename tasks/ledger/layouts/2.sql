ALTER TABLE ledger ADD COLUMN sequence INTEGER NOT NULL DEFAULT 0;
ALTER TABLE ledger ADD COLUMN state TEXT NOT NULL DEFAULT '';
ALTER TABLE ledger ADD COLUMN state_before TEXT NOT NULL DEFAULT '';
ALTER TABLE ledger ADD COLUMN cap TEXT;           -- of datasets without one of their own
ALTER TABLE ledger ADD COLUMN delta_cap TEXT;
ALTER TABLE datasets ADD COLUMN delta_cap TEXT;
ALTER TABLE draws ADD COLUMN n_values INTEGER;    -- noisy values charged, or null
ALTER TABLE published ADD COLUMN draw TEXT;
ALTER TABLE published ADD COLUMN n_values INTEGER NOT NULL DEFAULT 0;
CREATE INDEX draws_of_dataset ON draws (dataset);
CREATE TABLE conditions (                         -- files that decide a run's draws
    run_id TEXT NOT NULL,
    name TEXT NOT NULL,
    digest TEXT NOT NULL,
    PRIMARY KEY (run_id, name)
);
CREATE TABLE noise (                              -- every parameter that was charged
    run_id TEXT NOT NULL,
    draw TEXT NOT NULL,
    part TEXT NOT NULL,
    mechanism TEXT NOT NULL,
    parameter TEXT NOT NULL,
    PRIMARY KEY (run_id, draw, part, mechanism, parameter)
);
CREATE TABLE directories (                        -- the one directory that may draw
    run_id TEXT PRIMARY KEY,
    identity TEXT NOT NULL
);
CREATE TABLE claims (                             -- files being drawn, not yet published
    run_id TEXT NOT NULL,
    name TEXT NOT NULL,
    token TEXT NOT NULL,
    claimed_at TEXT NOT NULL,
    PRIMARY KEY (run_id, name)
);
