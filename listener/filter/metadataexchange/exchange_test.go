package metadataexchange

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"
)

// records is a Layer without cryptography: two length bytes and 20 more, then
// the text, as a record has them.
type records struct{}

const overhead = 22

func (records) Open(wire []byte) (plain []byte, used int, err error) {
	w := 0
	for len(wire)-used >= overhead {
		n := int(binary.BigEndian.Uint16(wire[used:]))
		if len(wire)-used < overhead+n {
			break
		}
		w += copy(wire[w:], wire[used+overhead:used+overhead+n])
		used += overhead + n
	}
	return wire[:w], used, nil
}

func (records) Seal(dst, plain []byte) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(plain)))
	return append(append(dst, make([]byte, overhead-2)...), plain...)
}

func (records) SealClose(dst []byte) []byte { return dst }

func TestFrameIsStripped(t *testing.T) {
	frame := string(Frame([]byte("about me")))
	for _, c := range []struct{ name, sent, got, peer string }{
		{"frame and data", frame + "hello", "hello", "about me"},
		{"frame alone", frame, "", "about me"},
		{"no frame", "hello there", "hello there", ""},
		{"almost a frame", "\x3d\x23\x04x and more", "\x3d\x23\x04x and more", ""},
		{"too long a frame", "\x3d\x23\x04\x67\x7f\xff\xff\xffdata", "\x3d\x23\x04\x67\x7f\xff\xff\xffdata", ""},
	} {
		for _, size := range []int{1, 3, 7, 100} { // bytes a record
			peer, got := "", ""
			l := Wrap(records{}, nil, func(msg []byte) { peer = string(msg) })
			for s := c.sent; s != ""; {
				k := min(size, len(s))
				p, used, err := l.Open(records{}.Seal(nil, []byte(s[:k])))
				if err != nil || used != overhead+k {
					t.Fatalf("%s: %d %v", c.name, used, err)
				}
				got += string(p)
				s = s[k:]
			}
			if got != c.got || peer != c.peer {
				t.Errorf("%s in records of %d: data %q, peer %q", c.name, size, got, peer)
			}
		}
	}
}

func TestOwnFrameGoesBeforeTheFirstByte(t *testing.T) {
	l := Wrap(records{}, Frame([]byte("us")), func([]byte) {})
	wire := l.Seal(l.Seal(nil, []byte("one")), []byte("two"))
	p, _, _ := records{}.Open(wire)
	if want := append(Frame([]byte("us")), "onetwo"...); !bytes.Equal(p, want) {
		t.Errorf("%q", p)
	}
}

func TestBytesAfterALongFrameInManyRecordsFit(t *testing.T) {
	sent := string(Frame(bytes.Repeat([]byte("x"), 5000))) + strings.Repeat("d", 30)
	l := Wrap(records{}, nil, func([]byte) {})
	var wire []byte
	for s := sent; s != ""; {
		k := min(40, len(s))
		wire = records{}.Seal(wire, []byte(s[:k]))
		s = s[k:]
	}
	p, _, _ := l.Open(wire)
	if string(p) != strings.Repeat("d", 30) {
		t.Errorf("%q", p)
	}
}
