package worker

import (
	"context"
	"testing"
	"time"
)

func TestPiecesOfLongWorkLeaveRoomForTurns(t *testing.T) {
	w, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	defer end()
	const pieces = 40
	var ran, atPost int
	var order []int
	w.Post(func() {
		for i := range pieces {
			w.Spare(&Deferred{Run: func() {
				if ran == 0 {
					w.Post(func() { atPost = ran })
				}
				for from := time.Now(); time.Since(from) < pieceTime/5; {
				}
				ran++
				order = append(order, i)
				if ran == pieces {
					end()
				}
			}})
		}
		if n := w.Pieces(); n != pieces {
			t.Errorf("%d pieces wait, not %d", n, pieces)
		}
	})
	if err := w.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if atPost < 1 || atPost > 6 {
		t.Errorf("a call had to wait for %d pieces: a turn has time for 5, and one's excess", atPost)
	}
	for i, n := range order {
		if i != n {
			t.Fatalf("out of order: %v", order)
		}
	}
	if len(order) != pieces {
		t.Errorf("%d of %d pieces ran", len(order), pieces)
	}
}

func TestPiecesComeAfterTheOutput(t *testing.T) {
	w, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	defer end()
	var order []string
	add := func(s string) func() { return func() { order = append(order, s) } }
	w.Post(func() {
		w.Spare(&Deferred{Run: func() { add("piece")(); end() }})
		w.Later(&Deferred{Run: add("later")})
		w.Post(add("mail"))
	})
	if err := w.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if len(order) < 2 || order[len(order)-1] != "piece" {
		t.Errorf("%v", order)
	}
}
