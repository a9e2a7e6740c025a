-- Events, specifications and counts hang on `number`, which is shorter than the id and grows: what is new lies
-- together.
CREATE TABLE job (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    tenant TEXT NOT NULL,
    state TEXT NOT NULL,
    reason TEXT,
    title TEXT NOT NULL,
    kind TEXT NOT NULL,
    labels TEXT NOT NULL, -- JSON object
    created_ms INTEGER NOT NULL,
    started_ms INTEGER,
    ended_ms INTEGER,
    steps_total INTEGER NOT NULL,
    steps_done INTEGER NOT NULL,
    sandbox TEXT,
    cancel_requested INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    owner TEXT,
    lease_until_ms INTEGER,
    last_seq INTEGER NOT NULL,
    is_mirrored INTEGER NOT NULL DEFAULT 0,
    is_deleted INTEGER NOT NULL DEFAULT 0,
    cpu_milli INTEGER NOT NULL,
    memory_bytes INTEGER NOT NULL,
    idempotency_key TEXT,
    idempotency_fingerprint TEXT
) STRICT;

CREATE INDEX job_by_tenant ON job (tenant, id) WHERE is_deleted = 0;
CREATE INDEX job_by_state ON job (tenant, state, id) WHERE is_deleted = 0;
CREATE INDEX job_scheduled ON job (id) WHERE state = 'scheduled';
CREATE INDEX job_running ON job (id) WHERE state = 'running';
CREATE INDEX job_unmirrored ON job (id) WHERE ended_ms IS NOT NULL AND is_mirrored = 0 AND is_deleted = 0;
CREATE INDEX job_deleted ON job (id) WHERE is_deleted = 1;
-- Deleted jobs hold their key until they are purged.
CREATE UNIQUE INDEX job_by_key ON job (tenant, idempotency_key) WHERE idempotency_key IS NOT NULL;

-- Apart from the job, whose rows are read far more often.
CREATE TABLE spec (
    job INTEGER PRIMARY KEY REFERENCES job (number) ON DELETE CASCADE,
    body TEXT NOT NULL -- JSON
) STRICT;

CREATE TABLE event (
    job INTEGER NOT NULL REFERENCES job (number) ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    time_ms INTEGER NOT NULL,
    kind TEXT NOT NULL,
    body TEXT NOT NULL, -- JSON
    PRIMARY KEY (job, seq)
) STRICT, WITHOUT ROWID;

-- Triggers, so that no statement can forget them. Deleted jobs do not count.
CREATE TABLE job_count (
    state TEXT PRIMARY KEY,
    jobs INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO job_count (state, jobs)
VALUES ('scheduled', 0), ('running', 0), ('completed', 0), ('failed', 0), ('cancelled', 0);

CREATE TRIGGER job_count_insert AFTER INSERT ON job BEGIN
    UPDATE job_count SET jobs = jobs + 1 WHERE state = NEW.state;
END;
CREATE TRIGGER job_count_state AFTER UPDATE OF state ON job WHEN OLD.state <> NEW.state BEGIN
    UPDATE job_count SET jobs = jobs - 1 WHERE state = OLD.state;
    UPDATE job_count SET jobs = jobs + 1 WHERE state = NEW.state;
END;
CREATE TRIGGER job_count_delete AFTER UPDATE OF is_deleted ON job WHEN OLD.is_deleted = 0 AND NEW.is_deleted = 1 BEGIN
    UPDATE job_count SET jobs = jobs - 1 WHERE state = NEW.state;
END;
