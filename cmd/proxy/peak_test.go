package main

import (
	"slices"
	"testing"
)

func TestMemoryIsGivenBackOnceAfterAPeak(t *testing.T) {
	const big, small = 10 << 20, 1 << 10
	for _, c := range []struct {
		rule  string
		live  uint64
		steps []uint64 // bytes allocated between looks
		want  int      // the look that gives back, from 1; 0: none
	}{
		{"an idle process never does", 4 * big / 5, []uint64{small, small, small, small}, 0},
		{"two quiet looks after a peak", 4 * big / 5, []uint64{big, small, small, small, small}, 3},
		{"a pause of one look isn't the end", 4 * big / 5, []uint64{big, small, big, small, small}, 5},
		{"traffic that goes on", 4 * big / 5, []uint64{big, big, big, big}, 0},
		{"a scrape of a large mesh", 16 * big, []uint64{big, small, small, small}, 0},
		{"many small things in the end", 4 * big / 5, []uint64{big / 100, small, small, small}, 0},
	} {
		var p peak
		var sum uint64
		got := 0
		for i, n := range c.steps {
			sum += n
			if p.over(sum, c.live, 0) {
				if got != 0 {
					t.Errorf("%s: given back twice", c.rule)
				}
				got = i + 1
			}
		}
		if got != c.want {
			t.Errorf("%s: given back at look %d, want %d", c.rule, got, c.want)
		}
	}
}

func TestMemoryIsGivenBackWhenManyConnectionsLeft(t *testing.T) {
	const crowd = 10000
	for _, c := range []struct {
		rule  string
		conns []int // at each look
		want  int
	}{
		{"a crowd that was quiet for long leaves", []int{crowd, crowd, crowd, 0, 0, 0, 0}, 6},
		{"it leaves by and by", []int{crowd, crowd, crowd / 2, 0, 0, 0, 0}, 6},
		{"a few come and go", []int{crowd, crowd, crowd - 60, crowd, crowd, crowd}, 0},
		{"few of many leave", []int{crowd, crowd, crowd, crowd - 300, crowd - 300, crowd - 300}, 0},
	} {
		var p peak
		got := 0
		for i, n := range c.conns {
			if p.over(0, 0, n) {
				got = i + 1
			}
		}
		if got != c.want {
			t.Errorf("%s: given back at look %d, want %d", c.rule, got, c.want)
		}
	}
}

func TestPagesOfTheBinaryGoOnceAllIsStill(t *testing.T) {
	type look struct{ allocated, cycles uint64 }
	quiet := look{}
	for _, c := range []struct {
		rule  string
		looks []look // since the one before
		want  []int  // the looks that drop them, from 1
	}{
		{"once in a quiet time", []look{quiet, quiet, quiet, quiet, quiet, quiet}, []int{3}},
		{"after requests", []look{{allocated: 1 << 20}, quiet, quiet, quiet, quiet}, []int{4}},
		{"after a collection, which reads them", []look{quiet, quiet, quiet, quiet, {cycles: 1}, quiet, quiet, quiet, quiet}, []int{3, 8}},
		{"not between requests", []look{{allocated: 1 << 20}, quiet, quiet, {allocated: 1 << 20}, quiet, quiet}, nil},
	} {
		var p peak
		var sum look
		var got []int
		for i, l := range c.looks {
			sum.allocated += l.allocated
			sum.cycles += l.cycles
			p.over(sum.allocated, 0, 0)
			if p.unread(sum.cycles) {
				got = append(got, i+1)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: dropped at looks %v, want %v", c.rule, got, c.want)
		}
	}
}
