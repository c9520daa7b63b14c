//! Files that are read, and refusals of those that are wrong.

use super::*;

#[test]
fn errors_name_their_line() {
    read(READS).unwrap();
    let ssd = "profile = \"optane-p4800x\"";
    for (from, to, expected) in [
        ("reads = 100", "reads = 100\nwrong = 1", "plan.toml:9: unknown field `wrong`"),
        ("reads = 100", "reads = \"all\"", "plan.toml:8: invalid type: string \"all\""),
        ("reads = 100", "reads = 101", "plan.toml:8: 101 of 100 requests"),
        ("reads = 100", "reads = ", "plan.toml:8: "),
        ("64MiB", "64 parsecs", "plan.toml:4: '64 parsecs': unknown unit"),
        ("64MiB", "0", "plan.toml:4: 0 bytes are too few"),
        ("64MiB", "4000TiB", "plan.toml:4: capacity: no drive is larger"),
        ("price = 100", "price = -1", "plan.toml:5: -1 is no price, which is 0 or more: write a"),
        ("price = 100", "price = nan", "plan.toml:5: NaN is no price"),
        (
            "price = 100",
            "price = \"0B\"",
            "plan.toml:5: '0B' is a size where a price is meant: write",
        ),
        ("price = 100", "price_per_tb = \"2 TB\"", "plan.toml:5: '2 TB' is a size where a price"),
        ("price = 100", "price = \"$450\"", "plan.toml:5: '$450' is no price: write a number"),
        ("price = 100", "price = \"450\"", "plan.toml:5: '450' is no price: write a number"),
        ("price = 100", "price = true", "boolean `true`, expected a price such as 450 or 449.90"),
        ("[mix]", "[prices]\ndram_per_gib = -0.5\n[mix]", "plan.toml:8: -0.5 is no price"),
        ("[mix]", "[prices]\ndram_per_gib = \"1GiB\"\n[mix]", "plan.toml:8: '1GiB' is a size"),
        (
            "[mix]",
            "[sweep]\n\"drive.fast.price\" = [\"0B\"]\n[mix]",
            "plan.toml:8: drive.fast.price: '0B' is a size where a price",
        ),
        ("\"64MiB\"", "\"0B\"", "plan.toml:4: 0 bytes are too few"),
        ("\"64MiB\"", "\"$450\"", "plan.toml:4: '$450' is no size; write for example"),
        ("\"64MiB\"", "449.90", "plan.toml:4: 449.9 is no size; write for example \"64MiB\""),
        (
            "price = 100",
            "price = 1\nprice_per_tb = 1",
            "plan.toml:6: price_per_tb: the drive has a price",
        ),
        ("optane-p4800x", "optane", "plan.toml:3: profile: there is no profile 'optane'"),
        (
            "price = 100",
            "placement = true",
            "plan.toml:5: placement: optane-p4800x has no data placement",
        ),
        ("price = 100", "over_provisioning = 0.1", "plan.toml:5: over_provisioning: "),
        ("price = 100", "translation = \"host\"", "plan.toml:5: translation: the controller"),
        (
            "price = 100",
            "read_latency_us = 1",
            "plan.toml:5: read_latency_us: 1 µs is not possible",
        ),
        ("price = 100", "random_reads = 100_000_000", "plan.toml:5: random_reads: the dies"),
        (
            ssd,
            "profile = \"sata-7200\"\nrated_erasures = 1",
            "plan.toml:4: rated_erasures: sata-7200 is a disk",
        ),
        (
            "device = \"fast\"",
            "device = \"slow\"",
            "plan.toml:13: there is no device 'slow': there are fast",
        ),
        ("device = \"fast\"", "capacity = \"fast\"", "plan.toml:12: a load on a device names it"),
        ("name = \"one\"", "name = \"\"", "plan.toml:12: a name is missing"),
        ("[mix]", "[sweep]\n\"drive.fast.price\" = []\n[mix]", "plan.toml:8: the list is empty"),
        (
            "[mix]",
            "[sweep]\n\"drive.fast.prize\" = [1]\n[mix]",
            "plan.toml:8: drive.fast.prize: unknown field",
        ),
        (
            "[mix]",
            "[sweep]\n\"drive.none.price\" = [1]\n[mix]",
            "plan.toml:8: drive.none.price: there is no table",
        ),
        ("[mix]", "[sweep]\n\"title\" = [1]\n[mix]", "plan.toml:8: title: only keys of drives"),
        ("[mix]", "[trace]\nfiles = [\"none.trace\"]\n[mix]", "plan.toml:7: a plan has one load"),
        ("[mix]", "[stripe.fast]\ndrives = []\n[mix]", "is called 'fast', too"),
        ("[mix]", "[growth]\nreplace_after_years = 0\n[mix]", "plan.toml:8: 0 years"),
        (READS.trim_start(), "scale = 0", "plan.toml:2: 0: everything is divided by"),
        (
            "optane-p4800x\"\ncapacity = \"64MiB\"",
            "micron-5210\"\ncapacity = \"1GiB\"\nplacement = true",
            "micron-5210 has no data placement",
        ),
        (
            "optane-p4800x\"\ncapacity = \"64MiB\"",
            "micron-7450\"\ncapacity = \"1GiB\"\nover_provisioning = 7",
            "7 is no share of the capacity, 0 to 1",
        ),
        ("[mix]", "[mix]\nfilled = 1.5", "plan.toml:8: 1.5: a share of the device"),
    ] {
        let text = READS.replacen(from, to, 1);
        assert_ne!(text, READS, "{from}");
        let why = read(&text).err().unwrap().to_string();
        assert!(why.contains(expected), "{to:?}: {why}");
    }
}

#[test]
fn missing_traces_and_variables_are_not_found() {
    let trace = |file: &str| {
        let load = format!("[trace]\nfiles = [\"{file}\"]\n\n[[alt");
        let text = READS.replace("[mix]\nreads = 100\nbytes = \"8MiB\"\n\n[[alt", &load);
        let error = read(&text).err().unwrap();
        assert_eq!(error.kind(), esker_base::ErrorKind::NotFound, "{error}");
        error.to_string()
    };
    assert!(trace("$ESKER_TEST_FOLDER/a.csv").contains("/nowhere/a.csv"));
    let why = trace("${ESKER_NONE}/a.csv");
    assert!(why.starts_with("plan.toml:8: ") && why.contains("no variable ESKER_NONE"), "{why}");
}

#[test]
fn traces_without_times_tell_no_life_and_are_replayed_in_order_only() {
    let scratch = std::env::temp_dir().join(format!("esker-plan-{}", std::process::id()));
    std::fs::create_dir_all(&scratch).unwrap();
    let file = scratch.join("a.lis");
    std::fs::write(&file, "10 1 0 1\n20 8 0 2\n10 1 0 3\n").unwrap();
    let plan = |more: &str| {
        let load = format!("[trace]\nfiles = [\"{}\"]\n{more}\n[[alt", file.display());
        READS.replace("[mix]\nreads = 100\nbytes = \"8MiB\"\n\n[[alt", &load)
    };
    let (in_order, in_time) = (read(&plan("")), read(&plan("faster = 1")));
    std::fs::remove_dir_all(&scratch).unwrap();
    assert!(in_order.unwrap().0.cases.iter().all(|case| case.recorded_s.is_none()));
    let why = in_time.err().unwrap().to_string();
    assert!(why.starts_with("plan.toml:9: ") && why.contains("has no times"), "{why}");
}

#[test]
fn a_device_is_no_part_of_itself() {
    let text = READS.replace("device = \"fast\"", "device = \"a\"")
        + "[stripe.a]\ndrives = [\"b\"]\n[stripe.b]\ndrives = [\"a\"]\n";
    let why = read(&text).err().unwrap().to_string();
    assert!(why.contains("a part of itself"), "{why}");
}

#[test]
fn a_sweep_makes_all_combinations_that_differ() {
    let text = READS.to_owned()
        + "[[alternative]]\nname = \"two\"\ndevice = \"other\"\n[drive.other]\nprofile = \"optane-p4800x\"\n\
           capacity = \"32MiB\"\n[sweep]\n\"drive.fast.capacity\" = [\"64MiB\", \"128MiB\"]\n\"mix.depth\" = [1, 8]\n";
    let report = run(&text);
    let names: Vec<&str> = report.cases.iter().map(|one| one.name.as_str()).collect();
    let expected = [
        "one, capacity 64MiB, depth 1",
        "one, capacity 64MiB, depth 8",
        "one, capacity 128MiB, depth 1",
        "one, capacity 128MiB, depth 8",
        // The other drive's capacity changes nothing here.
        "two, depth 1",
        "two, depth 8",
    ];
    assert_eq!(names, expected);
    assert!(report.cases[1].measured.ops_per_s > 2.0 * report.cases[0].measured.ops_per_s);
    assert_eq!(report.best[0].criterion, "throughput");
}

#[test]
fn a_sweep_over_prices_needs_one_run() {
    let report = run(&(READS.to_owned() + "[sweep]\n\"drive.fast.price\" = [100, 200]\n"));
    assert_eq!((report.cases.len(), report.made), (2, 1));
    assert_eq!(report.cases[1].cost_per_year, Some(40.0));
}

#[test]
fn the_value_that_is_wrong_is_named_among_several() {
    let text = READS.to_owned()
        + "[sweep]\n\"drive.fast.capacity\" = [\"64MiB\"]\n\"mix.depth\" = [\"many\"]\n\"mix.reads\" = [50]\n";
    let why = read(&text).err().unwrap().to_string();
    assert!(why.starts_with("plan.toml:16: mix.depth: invalid type"), "{why}");
}

#[test]
fn absurd_sizes_are_refused_before_anything_is_run() {
    let text = READS
        .replace("64MiB", "300GiB")
        .replace("[mix]", "[cache.front]\norigin = \"fast\"\nflash = \"fast\"\n[mix]");
    let text = text.replace("device = \"fast\"", "device = \"front\"");
    let plan = read(&text).unwrap();
    let error = plan.list(&mut Memory::default(), &surroundings(1)).unwrap_err().to_string();
    assert!(error.contains("of memory") && error.contains("raise scale"), "{error}");
    let plan = read(&READS.replace("8MiB", "9000000TB")).unwrap();
    let error = plan.list(&mut Memory::default(), &surroundings(1)).unwrap_err().to_string();
    assert!(error.starts_with("one: the run moves"), "{error}");
}

#[test]
fn plans_of_the_documentation_run() {
    let texts = [
        include_str!("../../../../../docs/plan/1-key-value.toml"),
        include_str!("../../../../../docs/plan/2-cache.toml"),
        include_str!("../../../../../docs/plan/3-placement.toml"),
    ];
    for text in texts {
        // As they are: they can be read, and every run fits the memory of a small machine.
        read(text).unwrap();
        let mut table: toml::Table = text.parse().unwrap();
        let set = |table: &mut toml::Table, load: &str, key: &str, value: toml::Value| {
            if let Some(load) = table.get_mut(load).and_then(toml::Value::as_table_mut) {
                load.insert(key.to_owned(), value);
            }
        };
        set(&mut table, "ycsb", "records", 300_000_000.into());
        set(&mut table, "ycsb", "operations", 50_000_000.into());
        set(&mut table, "trace", "requests", 2_000.into());
        set(&mut table, "streams", "bytes", "1TB".into());
        set(&mut table, "streams", "warm_up", "1TB".into());
        let report = run(&toml::to_string(&table).unwrap());
        assert!(report.cases.len() >= 3, "{}", report.title);
        assert!(report.finding.starts_with("Take "), "{}", report.finding);
        for one in &report.cases {
            assert!(one.cost_per_drive_year.is_some_and(|cost| cost > 0.0), "{}", one.name);
            assert!(one.measured.operations > 0, "{}", one.name);
        }
    }
}
