use super::*;

#[test]
fn zigzag_is_one_to_one() {
    for value in [0, 1, u64::MAX, 1 << 63, 12345, 0u64.wrapping_sub(12345)] {
        assert_eq!(unzigzag(zigzag(value)), value);
    }
    assert_eq!([zigzag(1), zigzag(u64::MAX), zigzag(2)], [2, 1, 4]);
}
