use esker_base::Rng;

use super::*;

const FORMAT: &str = "name: block_bio_queue\nID: 2097\nformat:\n\
    \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
    \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
    \tfield:dev_t dev;\toffset:8;\tsize:4;\tsigned:0;\n\
    \tfield:sector_t sector;\toffset:16;\tsize:8;\tsigned:0;\n\
    \tfield:unsigned int nr_sector;\toffset:24;\tsize:4;\tsigned:0;\n\
    \tfield:char rwbs[10];\toffset:28;\tsize:10;\tsigned:0;\n\
    \tfield:char comm[16];\toffset:38;\tsize:16;\tsigned:0;\n";

fn event(id: u16, sector: u64, sectors: u32, letters: &str) -> Vec<u8> {
    let mut bytes = vec![0; 56];
    bytes[..2].copy_from_slice(&id.to_le_bytes());
    bytes[16..24].copy_from_slice(&sector.to_le_bytes());
    bytes[24..28].copy_from_slice(&sectors.to_le_bytes());
    bytes[28..28 + letters.len()].copy_from_slice(letters.as_bytes());
    bytes
}

fn head(kind: u32, delta: u32) -> [u8; 4] {
    (delta << 5 | kind).to_le_bytes()
}

pub(crate) fn page(time_ns: u64, events: &[u8]) -> Vec<u8> {
    let mut bytes = time_ns.to_le_bytes().to_vec();
    // The kernel had lost events before this page: a flag above the size.
    bytes.extend((events.len() as u64 | 1 << 31).to_le_bytes());
    bytes.extend(events);
    bytes.resize(4096, 0);
    bytes
}

fn read(bytes: &[u8]) -> Result<Vec<Request>, String> {
    let mut out = Vec::new();
    Page::parse(bytes)?.requests(&Event::parse(FORMAT)?, &mut out)?;
    Ok(out)
}

pub(crate) fn every_kind() -> Vec<u8> {
    let mut events = Vec::new();
    events.extend(head(14, 5));
    events.extend(event(2097, 8, 16, "WS"));
    events.extend(head(TIME_EXTEND, 1));
    events.extend(2u32.to_le_bytes());
    events.extend(head(14, 3));
    events.extend(event(2097, 0, 0, "FWS"));
    events.extend(head(PADDING, 7));
    events.extend(12u32.to_le_bytes());
    events.extend([0xee; 8]);
    events.extend(head(0, 1));
    events.extend((4 + 56u32).to_le_bytes());
    events.extend(event(2097, 64, 8, "FRM"));
    events.extend(head(14, 0));
    events.extend(event(9, 1, 1, "R"));
    events.extend(head(TIME_STAMP, 9));
    events.extend(1u32.to_le_bytes());
    events.extend(head(14, 1));
    events.extend(event(2097, 100, 8, "D"));
    events.extend(head(14, 1));
    events.extend(event(2097, 200, 8, "N"));
    events.extend(head(PADDING, 0));
    events.extend([0xee; 40]);
    events
}

#[test]
fn events_of_every_kind_are_read() {
    let found = read(&page(1000, &every_kind())).unwrap();
    let request = |time_ns, op, sector: u64, sectors: u64| Request {
        time_ns,
        offset: sector * 512,
        length: sectors * 512,
        device: 0,
        op,
    };
    let second = 1005 + (2 << 27) + 1 + 3;
    let third = second + 7 + 1;
    let stamp = (1 << 27) + 9;
    let expected = [
        request(1005, Op::Write, 8, 16),
        request(second, Op::Flush, 0, 0),
        request(third, Op::Flush, 0, 0),
        request(third, Op::Read, 64, 8),
        request(stamp + 1, Op::Discard, 100, 8),
        request(stamp + 2, Op::Write, 200, 8),
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_format_without_a_field_is_refused() {
    for (from, to) in [("ID:", "id:"), ("rwbs[10]", "letters[10]"), ("size:8;", "size:4;")] {
        assert!(Event::parse(&FORMAT.replace(from, to)).is_err(), "{from}");
    }
}

#[test]
fn mutated_pages_never_panic() {
    let whole = page(1000, &every_kind());
    let mut rng = Rng::new(11);
    let mut refused = 0;
    for _ in 0..20_000 {
        let mut bytes = whole.clone();
        for _ in 0..=rng.below(4) {
            let at = usize::try_from(rng.below(500)).unwrap();
            bytes[at] = rng.u64().to_le_bytes()[0];
        }
        bytes.truncate(usize::try_from(rng.below(4097)).unwrap());
        if read(&bytes).is_err() {
            refused += 1;
        }
    }
    assert!(refused > 1000, "{refused}");
}
