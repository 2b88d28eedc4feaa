package load

import (
	"errors"
	"strings"
	"testing"

	"sluice/bench/origin"
	"sluice/bench/wire"
)

func TestSourceAndClientRepeatTheSameChunk(t *testing.T) {
	if chunk != origin.Chunk {
		t.Fatalf("the client wants chunks of %d, the source sends %d", chunk, origin.Chunk)
	}
}

// answerOf is what an origin answers to one unit of each engine.
func answerOf(kind string) string {
	body := string(wire.Body(50))
	switch kind {
	case "h1":
		return "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n" + body
	case "pingpong":
		return body
	}
	head := wire.Frame(nil, wire.Settings, 0, 0, nil)
	block := []byte{0x3f, 0xe1, 0x1f, 0x88} // a change of the table's size before :status 200
	switch kind {
	case "h2":
		return string(wire.Frame(wire.Frame(head, wire.Headers, wire.EndHeaders, 1, block), wire.Data, wire.End, 1, wire.Body(50)))
	case "stream":
		return string(wire.Frame(wire.Frame(head, wire.Headers, wire.EndHeaders, 1, block), wire.Data, 0, 1, wire.Message(50)))
	}
	head = wire.Frame(wire.Frame(head, wire.Headers, wire.EndHeaders, 1, block), wire.Data, 0, 1, wire.Message(50))
	return string(wire.Frame(head, wire.Headers, wire.EndHeaders|wire.End, 1, wire.Literal(nil, "grpc-status", "0")))
}

// deliver feeds an answer in pieces that are cut at the given places.
func deliver(e engine, answer string, cuts ...int) (units uint64, err error) {
	r := newRecorder(func() int64 { return 1000 })
	r.counting = true
	e.begin(nil, 0)
	var have []byte
	pos := 0
	for _, end := range append(cuts, len(answer)) {
		have = append(have, answer[pos:end]...)
		pos = end
		used, _, err := e.feed(have, nil, r)
		if err != nil {
			return r.units, err
		}
		have = have[used:]
	}
	if len(have) > 0 {
		return r.units, errors.New("bytes were left over")
	}
	return r.units, nil
}

func TestEnginesTakeAnswersAtEverySplit(t *testing.T) {
	for _, kind := range []string{"h1", "pingpong", "h2", "grpc", "stream"} {
		answer := answerOf(kind)
		for cut := range len(answer) {
			e, err := newEngine(Spec{Kind: kind, Size: 50})
			if err != nil {
				t.Fatal(err)
			}
			if units, err := deliver(e, answer, cut); err != nil || units != 1 || e.slots() != 1 {
				t.Fatalf("%s cut at %d: %d units, %d slots, %v", kind, cut, units, e.slots(), err)
			}
		}
	}
}

func TestEnginesRefuseWrongAnswers(t *testing.T) {
	for _, c := range []struct{ name, kind, from, to, want string }{
		{"status", "h1", "200 OK", "503 No", "answer"},
		{"length", "h1", "Length: 50", "Length: 49", "49 bytes"},
		{"no length", "h1", "Content-Length", "Content-Langth", "-1 bytes"},
		{"one byte", "h1", string(wire.Body(50)[20:]), "!" + string(wire.Body(50)[21:]), "wrong bytes"},
		{"one byte of an echo", "pingpong", string(wire.Body(50)[:5]), "!!!!!", "isn't what was sent"},
		{"status of a stream", "h2", "\x88", "\x8d", "status 200"},
		{"one byte of a stream", "h2", string(wire.Body(50)[:5]), "!!!!!", "wrong bytes"},
		{"an early end", "grpc", string(wire.Frame(nil, wire.Data, 0, 1, wire.Message(50))), string(wire.Frame(nil, wire.Data, wire.End, 1, wire.Message(50))), "ended after"},
		{"an end of a stream that stays", "stream", string(wire.Frame(nil, wire.Data, 0, 1, wire.Message(50))), string(wire.Frame(nil, wire.Data, wire.End, 1, wire.Message(50))), "ended"},
		{"a reset", "h2", string(wire.Frame(nil, wire.Settings, 0, 0, nil)), string(wire.Frame(nil, wire.Reset, 0, 1, make([]byte, 4))), "reset"},
	} {
		e, err := newEngine(Spec{Kind: c.kind, Size: 50})
		if err != nil {
			t.Fatal(err)
		}
		answer := strings.Replace(answerOf(c.kind), c.from, c.to, 1)
		if answer == answerOf(c.kind) {
			t.Errorf("%s: nothing was changed", c.name)
		}
		if _, err := deliver(e, answer); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

func TestEnginesAllocateNothing(t *testing.T) {
	r := newRecorder(func() int64 { return 1000 })
	r.counting = true
	for _, kind := range []string{"h1", "pingpong"} {
		e, err := newEngine(Spec{Kind: kind, Size: 50})
		if err != nil {
			t.Fatal(err)
		}
		answer, out := []byte(answerOf(kind)), make([]byte, 0, 1024)
		n := testing.AllocsPerRun(100, func() {
			out = e.begin(out[:0], 0)
			if _, _, err := e.feed(answer, out, r); err != nil {
				t.Fatal(err)
			}
		})
		if n != 0 {
			t.Errorf("%s: %v allocations a unit", kind, n)
		}
	}
}
