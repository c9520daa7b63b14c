# A hash of strings that is filled, changed and read at random.
use strict;
use warnings;
use integer;

my ($count, $state) = (60_000, 12345);
sub number { $state = ($state * 1103515245 + 12345) & 0x7fffffff; return ($state >> 8) % $_[0]; }

my %rows;
$rows{"key$_"} = 'v' x 2000 . $_ for 1 .. $count;
for (1 .. 2_000) {
    my $n = 1 + number($count);
    if (number(4) == 0) { delete $rows{"key$n"} }
    else { $rows{"key$n"} .= "-$_" }
}
my ($sum, $length) = (0, 0);
for (1 .. $count) {
    my $key = "key$_";
    next unless exists $rows{$key};
    $sum += unpack('%32C*', $rows{$key});
    $length += length $rows{$key};
}
print scalar(keys %rows), " $length $sum\n";
