// Maps, slices and goroutines that fill, change and read memory at random.
package main

import (
	"fmt"
	"sort"
	"sync"
)

const count = 150000

type row struct {
	text string
	list []int
}

func number(state *uint64, below int) int {
	*state ^= *state << 13
	*state ^= *state >> 7
	*state ^= *state << 17
	return int(*state % uint64(below))
}

func work(seed uint64) uint64 {
	rows := map[int]*row{}
	for n := 0; n < count; n++ {
		rows[n] = &row{fmt.Sprintf("value %d of some length", n), []int{n, n + 1}}
	}
	for n := 0; n < count/40; n++ {
		key := number(&seed, count)
		if found, ok := rows[key]; ok && number(&seed, 5) == 0 {
			found.list = append(found.list, n)
		} else {
			rows[key] = &row{fmt.Sprint("again", n), nil}
		}
	}
	keys := make([]int, 0, len(rows))
	for key := range rows {
		keys = append(keys, key)
	}
	sort.Ints(keys)
	sum := uint64(0)
	for place, key := range keys {
		sum = sum*31 + uint64(place*key)
		for _, one := range rows[key].list {
			sum += uint64(one)
		}
	}
	return sum
}

func main() {
	sums := make([]uint64, 3)
	var group sync.WaitGroup
	for n := range sums {
		group.Add(1)
		go func(n int) {
			defer group.Done()
			sums[n] = work(uint64(n) + 77)
		}(n)
	}
	group.Wait()
	bytes := make([]byte, 128<<20)
	for n := 0; n < len(bytes); n += 256 {
		bytes[n] = byte(n >> 8)
	}
	state, sum := uint64(3), 0
	for n := 0; n < 15000; n++ {
		sum += int(bytes[number(&state, len(bytes))])
	}
	fmt.Println(sums, sum)
}
