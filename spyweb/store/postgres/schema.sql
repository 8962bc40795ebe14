-- What PostgreSQL has beside the tables of store/sqlite/schema.sql.

-- Functions of SQLite that PostgreSQL spells otherwise, so that one text serves both.
CREATE FUNCTION min(bigint, bigint) RETURNS bigint LANGUAGE sql IMMUTABLE STRICT AS 'SELECT least($1, $2)';
CREATE FUNCTION max(bigint, bigint) RETURNS bigint LANGUAGE sql IMMUTABLE STRICT AS 'SELECT greatest($1, $2)';
CREATE FUNCTION iif(boolean, anycompatible, anycompatible) RETURNS anycompatible LANGUAGE sql IMMUTABLE
    AS 'SELECT CASE WHEN $1 THEN $2 ELSE $3 END';
CREATE FUNCTION to_json_of(text) RETURNS json LANGUAGE sql IMMUTABLE STRICT  -- it reads no escaped NUL
    AS $$ SELECT replace($1, '\u0000', '\u0001')::json $$;
CREATE FUNCTION json_valid(text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE STRICT
    AS 'BEGIN PERFORM to_json_of($1); RETURN true; EXCEPTION WHEN OTHERS THEN RETURN false; END';
CREATE FUNCTION json_extract(text, text) RETURNS text LANGUAGE sql IMMUTABLE STRICT AS $$
    SELECT CASE v WHEN 'true' THEN '1' WHEN 'false' THEN '0' ELSE v END
    FROM (
        SELECT CASE $2 WHEN '$[#-1]' THEN to_json_of($1) ->> -1
            ELSE to_json_of($1) #>> string_to_array(substr($2, 3), '.') END
    ) AS x (v)
$$;
CREATE FUNCTION json_type(text, text) RETURNS text LANGUAGE sql IMMUTABLE STRICT
    AS $$ SELECT json_typeof(to_json_of($1) #> string_to_array(substr($2, 3), '.')) $$;
CREATE FUNCTION json_each(text) RETURNS TABLE (value text) LANGUAGE sql IMMUTABLE STRICT ROWS 20
    AS 'SELECT json_array_elements_text(to_json_of($1))';
CREATE FUNCTION json_each(text, text) RETURNS TABLE (key text, value text) LANGUAGE sql IMMUTABLE STRICT
    AS $$ SELECT * FROM json_each_text(to_json_of($1) #> string_to_array(substr($2, 3), '.')) $$;
CREATE FUNCTION instr(text, text) RETURNS bigint LANGUAGE sql IMMUTABLE STRICT AS 'SELECT strpos($1, $2)::bigint';
CREATE FUNCTION join_texts(text, text, text) RETURNS text LANGUAGE sql IMMUTABLE
    AS $$ SELECT CASE WHEN $1 IS NULL THEN $2 WHEN $2 IS NULL THEN $1 ELSE $1 || $3 || $2 END $$;
CREATE AGGREGATE group_concat(text, text) (sfunc = join_texts, stype = text);
CREATE VIEW sqlite_master AS SELECT tablename AS name FROM pg_tables WHERE schemaname = current_schema();

-- Most changes of a run move it between partial indexes, so none of its versions is cleared by the page.
ALTER TABLE run SET (autovacuum_vacuum_scale_factor = 0.02);

-- The nodes of a cluster.  No foreign key refers to a lane: it would lock the row that its node's transactions lock.
CREATE TABLE node (                     -- a row a start, written at its beginning and its end
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name        text COLLATE "C" NOT NULL,
    url         text NOT NULL DEFAULT '',
    place       bytea NOT NULL,         -- a digest of its machine and its data directory
    version     text NOT NULL,
    folder      bytea NOT NULL DEFAULT '',
    labels      text NOT NULL DEFAULT '[]',  -- JSON
    is_standby  boolean NOT NULL DEFAULT false,
    only_labels boolean NOT NULL DEFAULT false,
    lease_ms    bigint NOT NULL,
    started     timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended       timestamptz,            -- NULL: it lives, or nobody has noticed
    ended_by    bigint                  -- the node that has declared it dead
);
CREATE TABLE lane (                     -- each transaction that writes begins by locking its node's row: the fence
    node  bigint PRIMARY KEY,
    state "char" NOT NULL               -- a: alive, d: draining, l: left, x: declared dead
) WITH (fillfactor = 50);
CREATE TABLE heart (
    node      bigint PRIMARY KEY,
    beat      timestamptz NOT NULL DEFAULT clock_timestamp(),
    beats     bigint NOT NULL DEFAULT 0,
    timeline  text NOT NULL DEFAULT '', -- of the database
    offset_ms bigint NOT NULL DEFAULT 0 -- by which its machine's clock was behind at the beat before
) WITH (fillfactor = 50);
CREATE TABLE slot (
    pool  text COLLATE "C",
    id    bigint,
    owner bigint,                       -- NULL: nobody
    PRIMARY KEY (pool, id)
) WITH (fillfactor = 50);
