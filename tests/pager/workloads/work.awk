# Texts by key, of which some are looked up at random.
{ texts[$1] = $0 }
END {
    for (n = 0; n < 6000; n++) {
        key = "key" (n * 104729 % 60003)
        if (key in texts)
            sum += substr(texts[key], length(texts[key]) - 5) + n
    }
    print sum
}
