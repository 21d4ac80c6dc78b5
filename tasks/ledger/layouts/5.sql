ALTER TABLE ledger ADD COLUMN epsilon_cap TEXT;   -- of datasets without one of their own
ALTER TABLE datasets ADD COLUMN epsilon_cap TEXT;
ALTER TABLE draws ADD COLUMN after_results INTEGER;  -- charged when some were published
CREATE TABLE curves (                             -- what the privacy curve is worked out from
    run_id TEXT NOT NULL,
    draw TEXT NOT NULL,
    curve TEXT NOT NULL,
    PRIMARY KEY (run_id, draw)
);
