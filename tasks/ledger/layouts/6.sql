ALTER TABLE draws ADD COLUMN stated_factor TEXT;  -- where more is stated than charged, or null
