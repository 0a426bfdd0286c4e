SELECT row_number() OVER (PARTITION BY name ORDER BY id), rank() OVER w, dense_rank() OVER w, percent_rank() OVER w,
    cume_dist() OVER w, ntile(3) OVER w, lag(amt, 1, 0) OVER w, lead(amt) OVER w, first_value(amt) OVER w,
    last_value(amt) OVER w, nth_value(amt, 2) OVER w FROM t WINDOW w AS (PARTITION BY name ORDER BY id);
SELECT sum(amt) OVER (ORDER BY ts RANGE BETWEEN INTERVAL 1 HOUR PRECEDING AND CURRENT ROW), avg(f) OVER (ORDER BY id
    ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING EXCLUDE CURRENT ROW), count(*) FILTER (WHERE b) OVER (), lag(f IGNORE
    NULLS) OVER (ORDER BY id) FROM t;
SELECT id FROM t QUALIFY row_number() OVER (PARTITION BY name ORDER BY ts DESC) = 1;
SELECT name, b, sum(amt), grouping(name), grouping_id(name, b) FROM t GROUP BY GROUPING SETS ((name, b), (name), ());
SELECT name, b, sum(amt) FROM t GROUP BY CUBE(name, b);
SELECT name, sum(amt) FROM t GROUP BY ROLLUP(name) HAVING sum(amt) > 1 ORDER BY ALL;
SELECT name, sum(amt) FROM t GROUP BY ALL;
SELECT unnest(l), id FROM t;
SELECT id, x FROM t, unnest(l) AS u(x);
SELECT id, x FROM t CROSS JOIN LATERAL (SELECT unnest(t.l) AS x);
SELECT unnest(s) FROM t;
SELECT unnest([{'a':1},{'a':2}], recursive := true), unnest([1,2], max_depth := 1) FROM t;
SELECT * FROM t, generate_series(1, 3) g(x), range(2) r;
SELECT s.a, s['b'], s.*, struct_extract(s,'a'), {'x': id, 'y': name}, row(id,name), struct_pack(a := id) FROM t;
SELECT l[1], l[-1], l[1:2], len(l), list_sum(l), list_sort(l,'DESC'), list_filter(l, lambda x: x > 1), [x*2 for x in
    l if x>1], list_contains(l,2), l || [9], list_zip(l,l), list_reduce(l, lambda a, b: a + b), array_agg(id ORDER
    BY id DESC) OVER () FROM t;
SELECT m['k'], map_keys(m), map_values(m), map_entries(m), cardinality(m), MAP {'a': id}, element_at(m,'k') FROM t;
SELECT date_trunc('month', ts), extract(year FROM ts), date_part('dow', ts), ts + INTERVAL 1 DAY, ts - ts,
    date_diff('day', d, DATE '2020-02-01'), age(ts, ts), strftime(ts,'%Y-%m'), strptime('2020','%Y'), d + 3,
    last_day(d), make_date(2020,1,1), epoch(ts), to_timestamp(0), dayname(d), monthname(d), isodow(d), week(d),
    quarter(d), time_bucket(INTERVAL '1 week', ts), current_date, now(), today(), current_timestamp, tz AT TIME ZONE
    'Europe/Berlin', datetrunc('day', tz), date '2020-01-01', timestamp '2020-01-01 00:00:00', interval '1' year
    FROM t;
SELECT upper(name), lower(name), length(name), substr(name,1,2), substring(name FROM 1 FOR 2), trim(BOTH 'x' FROM
    name), position('n' IN name), replace(name,'n','m'), lpad(name,5,'0'), name || 'x', concat(name,'a',id),
    concat_ws('-',name,id), split_part(name,'n',1), regexp_matches(name,'n'), regexp_replace(name,'n','m','g'),
    regexp_extract(name,'n(.)',1), name LIKE 'n%', name ILIKE 'N%', name NOT LIKE 'x', name SIMILAR TO 'n.', name
    GLOB 'n*', name ~ 'n.', starts_with(name,'n'), reverse(name), repeat(name,2), left(name,1), right(name,1),
    ascii(name), chr(65), md5(name), sha256(name), hash(name), format('{}',id), printf('%d',id),
    string_split(name,'n'), string_agg(name, ',' ORDER BY id) OVER (), translate(name,'n','m') FROM t;
SELECT COALESCE(name,'x'), NULLIF(id,1), IFNULL(id,1), TRY_CAST(name AS INT), TRY(CAST(name AS INT)), CAST(id AS
    VARCHAR), id::DOUBLE, CASE WHEN b THEN 1 ELSE 2 END, CASE id WHEN 1 THEN 'a' END, if(b,1,2), greatest(id,2),
    least(id,2), id IS DISTINCT FROM 1, id IS NOT DISTINCT FROM 2, id BETWEEN 1 AND 2, id NOT BETWEEN 1 AND 2, id IN
    (1,2), id NOT IN (1,2), b IS TRUE, b IS NOT FALSE, id IS NULL, id ISNULL, id NOTNULL, NOT b, -id, +id, id % 2,
    id // 2, id ** 2, id ^ 2, id & 1, id | 1, id << 1, ~id, xor(id,1), @(-1), 5! FROM t;
SELECT * FROM t ASOF JOIN u ON t.name = u.name AND t.ts >= u.ts;
SELECT t.id FROM t ASOF LEFT JOIN u USING (name, ts);
SELECT * FROM t POSITIONAL JOIN u;
SELECT * FROM t NATURAL JOIN (SELECT id FROM u);
SELECT * FROM t SEMI JOIN u USING (id);
SELECT * FROM t ANTI JOIN u USING (id);
SELECT * FROM t FULL OUTER JOIN u ON t.id = u.id + 1 LEFT JOIN u v ON true RIGHT JOIN u w ON w.id=1;
SELECT * FROM t USING SAMPLE 50%;
SELECT * FROM t TABLESAMPLE reservoir(3 ROWS) REPEATABLE (1);
SELECT * FROM t USING SAMPLE 50 PERCENT (bernoulli, 3);
SELECT * FROM (SELECT id FROM t) TABLESAMPLE 2 ROWS;
SELECT id FROM t LIMIT 50%;
SELECT id FROM t ORDER BY id NULLS FIRST, name DESC LIMIT 2 OFFSET 1;
SELECT DISTINCT ON (name) name, id FROM t ORDER BY name, id;
PIVOT t ON b IN (true, false) USING sum(amt) GROUP BY name;
SELECT * FROM t PIVOT (sum(amt) FOR b IN (true, false) GROUP BY name);
UNPIVOT (SELECT id, f, amt::double AS amt FROM t) ON f, amt INTO NAME n VALUE v;
SELECT * FROM (SELECT id, f, amt::double AS amt FROM t) UNPIVOT (v FOR n IN (f, amt));
UNPIVOT (SELECT id, f, amt::double AS amt FROM t) ON COLUMNS(* EXCLUDE (id)) INTO NAME n VALUE v;
WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM r WHERE n < 5) SELECT * FROM r, t;
WITH RECURSIVE r AS (SELECT id, id AS root FROM t WHERE id=0 UNION SELECT t.id, r.root FROM t JOIN r ON t.id =
    r.id+1) SELECT * FROM r;
WITH RECURSIVE r(id, x) USING KEY (id) AS (SELECT id, 1 FROM t UNION SELECT id, x+1 FROM r WHERE x<3) SELECT * FROM
    r;
WITH a AS MATERIALIZED (SELECT * FROM t), c AS NOT MATERIALIZED (SELECT * FROM a) SELECT * FROM c;
SELECT id FROM t UNION SELECT id FROM u EXCEPT SELECT 1 INTERSECT SELECT 2;
SELECT id FROM t UNION ALL BY NAME SELECT id, name FROM u;
SELECT * EXCLUDE (l, s) REPLACE (id+1 AS id) FROM t;
SELECT * RENAME (id AS x) FROM t;
SELECT COLUMNS('^a'), COLUMNS(lambda c: c LIKE 'i%'), min(COLUMNS(['id','f'])) OVER () FROM t;
SELECT * LIKE 'a%' FROM t;
SELECT max(COLUMNS(* EXCLUDE (l, s, m))) FROM t;
FROM t SELECT id WHERE id>1;
FROM t;
SELECT t FROM t;
SELECT #1, #2 FROM t;
SELECT id AS x, x + 1 AS y FROM t;
SELECT (SELECT max(id) FROM u WHERE u.name=t.name), EXISTS (SELECT 1 FROM u), id = ANY (SELECT id FROM u), id > ALL
    (SELECT id FROM u WHERE id<0), id IN (SELECT id FROM u), (id, name) IN (SELECT id, name FROM u), ARRAY(SELECT id
    FROM u) FROM t;
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY f), percentile_disc(0.5) WITHIN GROUP (ORDER BY f), mode() WITHIN
    GROUP (ORDER BY f), median(f), quantile_cont(f,[0.1,0.9]), approx_count_distinct(id), arg_max(name,id),
    max_by(name,id), min_by(name,id), any_value(name), first(name ORDER BY id), last(name), string_agg(name),
    listagg(name,','), histogram(id), count(DISTINCT name), count(*) FILTER (b), sum(DISTINCT amt), stddev(f),
    stddev_samp(f), var_pop(f), corr(f,id), covar_pop(f,id), regr_slope(f,id), bool_and(b), bool_or(b), bit_and(id),
    product(f), entropy(id), kurtosis(f), skewness(f), list(id), max(id,3), min(id,2) FROM t;
SELECT j->'a', j->>'$.a[0]', json_extract(j,'$.a'), json_extract_string(j,'$.a'), json_array_length(j,'$.a'),
    json_type(j), to_json(s), json_object('a',id), json_group_array(id), json_keys(j), j::JSON, json_valid(j),
    from_json(j,'{"a":"JSON"}'), json_structure(j) FROM t GROUP BY ALL;
SELECT * FROM t, json_each(j) e;
SELECT key, value FROM t, json_tree(t.j);
VALUES (1, 2), (3, 4) UNION SELECT id, id FROM t;
SELECT * FROM (VALUES (1,'a'),(2,'b')) v(x,y) JOIN t ON v.x=t.id;
SUMMARIZE t;
DESCRIBE t;
SELECT * FROM (DESCRIBE t);
SELECT * FROM (SUMMARIZE SELECT id FROM t);
TABLE t;
SELECT round(f, 2), floor(f), ceil(f), abs(f), sqrt(f), ln(f+1), log10(f+1), exp(f), power(f, 2), sign(f), trunc(f),
    random(), pi(), mod(id, 2), gcd(id, 2), factorial(3), bit_count(id), sin(f), isnan(f), isfinite(f), setseed(0.5)
    FROM t;
SELECT typeof(id), pg_typeof(id), uuid(), gen_random_uuid(), hex(bin), encode(name), decode(bin), base64(bin),
    octet_length(bin), bin || bin FROM t;
SELECT name COLLATE NOCASE FROM t ORDER BY name COLLATE NOACCENT;
SELECT name FROM t ORDER BY name COLLATE de;
SELECT id::ENUM('a','b') FROM t WHERE false;
SELECT name::ENUM('n0','n1','n2') FROM t;
SELECT CAST(s AS STRUCT(a INT, b VARCHAR)), CAST(l AS INT[]), l::INT[2], id::HUGEINT, id::UNION(x BIGINT, y
    VARCHAR), MAP([1],[2])::MAP(INT,INT), '1 day'::INTERVAL, '10:00'::TIME, name::BLOB, id::BIT::VARCHAR FROM t;
SELECT list_aggregate(l,'sum'), list_aggr(l,'string_agg','|'), list_transform(l, lambda x, i: x+i), apply(l, lambda
    x: x), list_any_value(l), flatten([l,l]), list_unique(l), list_distinct(l), list_slice(l,1,2),
    array_to_string(l,','), list_cosine_similarity([1.0],[2.0]), list_position(l,1), list_grade_up(l),
    list_where(l,[true,false]), list_select(l,[1]), list_resize(l,3) FROM t;
SELECT array_value(1, 2, 3), array_cross_product([1.0, 2, 3]::DOUBLE[3], [1.0, 2, 3]::DOUBLE[3]) FROM t;
SELECT current_time::VARCHAR, localtime, localtimestamp, transaction_timestamp(), get_current_timestamp() FROM t;
SELECT sum(id ORDER BY id), avg(id), fsum(f), favg(f), mad(f), geomean(f+1), weighted_avg(f, id), bitstring_agg(id,
    0, 9)::VARCHAR, approx_quantile(f, 0.5), approx_top_k(id, 2), reservoir_quantile(f, 0.5), arbitrary(id), count_if(b),
    countif(b), sem(f), group_concat(name), array_agg(id), max_by(id, f, 2) FROM t;
SELECT union_value(k := id), union_tag(union_value(k := 1)) FROM t;
SELECT id, sum(id) OVER (ORDER BY id GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW), fill(f) OVER (ORDER BY id) FROM t;
SELECT id FROM t WHERE (id, name) > (1, 'a') AND ROW(id,1) = ROW(1,1);
SELECT constant_or_null(1,id), create_sort_key(id,'ASC NULLS LAST'), can_cast_implicitly(id, 1::DOUBLE), path_join('a','b')
    FROM t;
SELECT invoke(lambda x: x + 1, id) FROM t;
SELECT ST_AsText(ST_GeomFromWKB(bin)) FROM t WHERE false;
SELECT id FROM t ORDER BY random() LIMIT 1;
SELECT id FROM t, (SELECT 1 AS one) LIMIT (SELECT 3);
SELECT 1_000 + id, 0x1F, 1e3, 'it''s', E'a\n', $$x$$, TRUE, NULL, DATE '2020-01-01', X'ab' FROM t;
SELECT extract('year' FROM d), year(d), month(ts), day(ts), hour(ts), minute(ts), second(ts), millisecond(ts),
    to_days(1), to_months(1), date_add(d, INTERVAL 1 DAY), date_sub('day', d, d), datediff('day',d,d), julian(d),
    era(d), century(d), yearweek(d), epoch_ms(1), epoch_ms(ts), make_timestamp(2020,1,1,0,0,0.0),
    make_time(1,2,3.0), try_strptime('x','%Y'), strptime('1/1/2020', ['%d/%m/%Y','%Y']), ts::DATE, ts BETWEEN
    TIMESTAMP '2020-01-01' AND TIMESTAMP '2021-01-01', range(DATE '2020-01-01', DATE '2020-02-01', INTERVAL 1
    MONTH), generate_series(ts, ts + INTERVAL 1 DAY, INTERVAL 12 HOUR), isoyear(d), dayofyear(d),
    datesub('month',d,d), timezone('UTC',ts), ts AT TIME ZONE 'UTC', to_seconds(1), to_hours(1), interval (id) days,
    extract(epoch from ts) FROM t;
SELECT bar(f,0,10), levenshtein(name,'n'), jaccard(name,'n'), damerau_levenshtein(name,'x'),
    jaro_similarity(name,'n'), hamming(name,'n1') FROM t;
SELECT nfc_normalize(name), strip_accents(name), url_encode(name), url_decode(name), parse_path('a/b'),
    parse_filename('a/b.c'), parse_dirname('a/b'), ord(name), unicode(name), bit_length(name), to_base(5,2), bin(5),
    contains(name,'n'), instr(name,'n'), strpos(name,'n'), suffix(name,'x'), prefix(name,'x'),
    like_escape(name,'x','$'), name LIKE 'n$%' ESCAPE '$', regexp_split_to_array(name,'n'),
    regexp_extract_all(name,'n'), regexp_full_match(name,'n.'), regexp_escape(name), formatReadableSize(1000),
    format_bytes(1000), overlay(name placing 'x' from 1) FROM t;
SELECT regexp_split_to_table(name,'n') FROM t;
SELECT * FROM repeat(1, 3), repeat_row(1, 'a', num_rows = 2), t;
SELECT id FROM t AS a(x, y), u;
SELECT t.* EXCLUDE (t.id), u.name FROM t JOIN u USING (id);
SELECT name, list(DISTINCT id ORDER BY id DESC) FILTER (WHERE id > 1) FROM t GROUP BY 1 HAVING count(*) > 0 ORDER BY
    1;
SELECT sum(amt) FROM t GROUP BY name, GROUPING SETS ((b), ());
SELECT variant_extract(name::VARIANT, '$')::VARCHAR FROM t;
SELECT s::VARIANT::VARCHAR FROM t;
SELECT * FROM t WHERE id = (SELECT min(id) FROM u) AND name NOT IN ('a') OR EXISTS (FROM u WHERE u.id=t.id);
SELECT least(d, DATE '2020-01-01'), list_min(l), array_length(l), len(name), array_has(l,1), array_slice(l,1,2) FROM
    t;
SELECT struct_insert(s, c := 1), struct_update(s, a := 2), struct_keys(s), struct_values(s),
    struct_concat(s,{'q':1}) FROM t;
SELECT * FROM t JOIN u ON t.id=u.id AND t.d = u.d WHERE t.ts::DATE = DATE '2020-01-01' ORDER BY t.id DESC NULLS LAST
    FETCH FIRST 3 ROWS ONLY;
SELECT DISTINCT name FROM t ORDER BY name;
SELECT count(*), count(), count(1) FROM t;
SELECT last_value(id IGNORE NULLS) OVER (ORDER BY id), nth_value(id, 2 IGNORE NULLS) OVER (ORDER BY id) FROM t;
SELECT x, o FROM t, unnest(t.l) WITH ORDINALITY AS u(x, o);
SELECT pg_size_pretty(id), decimal_average(amt) OVER () FROM t;
