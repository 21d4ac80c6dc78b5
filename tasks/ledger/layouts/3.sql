ALTER TABLE directories ADD COLUMN folder TEXT;   -- where it was when it was last charged
