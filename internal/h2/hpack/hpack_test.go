package hpack

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	xhpack "golang.org/x/net/http2/hpack"

	"sluice/internal/httpmsg"
)

func decodeAll(d *Decoder, block []byte) (out []xhpack.HeaderField, err error) {
	d.Start()
	for {
		var f Field
		rest, ok, err := d.Next(block, &f)
		if err != nil {
			return out, err
		}
		if !ok {
			return out, nil
		}
		out = append(out, xhpack.HeaderField{Name: string(f.Name), Value: string(f.Value), Sensitive: f.Sensitive})
		if want := checkName(f.Name) | checkValue(f.Value); f.Check != want {
			return out, fmt.Errorf("field %q is checked as %d, want %d", f.Name, f.Check, want)
		}
		if f.ID != httpmsg.Lookup(f.Name) {
			return out, fmt.Errorf("field %q has ID %d", f.Name, f.ID)
		}
		block = rest
	}
}

func TestHuffmanDecodesWhatXNetEncodes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		s := make([]byte, r.IntN(40))
		for i := range s {
			s[i] = byte(r.IntN(256))
			if r.IntN(3) > 0 {
				s[i] = byte('a' + r.IntN(26))
			}
		}
		code := xhpack.AppendHuffmanString(nil, string(s))
		if got, err := appendHuffman(nil, code); err != nil || !bytes.Equal(got, s) {
			t.Fatalf("%q: got %q, %v", s, got, err)
		}
	}
}

// sample makes header lists as they follow each other on a connection.
func sample(r *rand.Rand) (fs []xhpack.HeaderField) {
	names := []string{":path", ":authority", "user-agent", "x-request-id", "date", "x-a", "content-type", "grpc-status",
		"a-very-long-name-that-nobody-knows", "cookie", "authorization", "etag"}
	for range r.IntN(12) {
		n := names[r.IntN(len(names))]
		v := fmt.Sprint("v", r.IntN(6))
		switch r.IntN(8) {
		case 0:
			v = strings.Repeat("x", r.IntN(600))
		case 1:
			v = fmt.Sprint(r.Uint64())
		}
		fs = append(fs, xhpack.HeaderField{Name: n, Value: v, Sensitive: r.IntN(10) == 0})
	}
	return fs
}

func encode(e *Encoder, fs []xhpack.HeaderField) []byte {
	b := e.Start(nil)
	for _, f := range fs {
		if f.Name[0] == ':' {
			if f.Name == ":path" {
				b = e.Path(b, []byte(f.Value))
			} else {
				b = e.Authority(b, []byte(f.Value))
			}
			continue
		}
		b = e.Field(b, httpmsg.LookupString(f.Name), []byte(f.Name), []byte(f.Value), f.Sensitive)
	}
	return b
}

func same(a, b []xhpack.HeaderField) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].Name != b[i].Name || a[i].Value != b[i].Value {
			return false
		}
	}
	return true
}

func TestXNetDecodesWhatWeEncodeAcrossResizes(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, size := range []uint32{4096, 200, 0} {
		e := NewEncoder(4096)
		e.SetMax(size, 4096)
		d := xhpack.NewDecoder(4096, nil)
		own := NewDecoder(4096)
		for i := range 3000 {
			if i%100 == 50 {
				e.SetMax(uint32(r.IntN(5000)), 4096)
			}
			fs := sample(r)
			block := encode(&e, fs)
			got, err := d.DecodeFull(block)
			if err != nil || !same(got, fs) {
				t.Fatalf("size %d block %d: %v\n got %v\nwant %v", size, i, err, got, fs)
			}
			if got, err := decodeAll(&own, block); err != nil || !same(got, fs) {
				t.Fatalf("own: size %d block %d: %v", size, i, err)
			}
		}
		if len(e.table.buf) > 8192 || cap(e.table.buf) > 16384 {
			t.Errorf("table buffer grew to %d", cap(e.table.buf))
		}
	}
}

func TestWeDecodeWhatXNetEncodes(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	var b bytes.Buffer
	e := xhpack.NewEncoder(&b)
	d := NewDecoder(4096)
	for i := range 3000 {
		if i%50 == 7 {
			e.SetMaxDynamicTableSize(uint32(r.IntN(4097)))
		}
		fs := sample(r)
		b.Reset()
		for _, f := range fs {
			if err := e.WriteField(f); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := decodeAll(&d, b.Bytes()); err != nil || !same(got, fs) {
			t.Fatalf("block %d: %v", i, err)
		}
	}
}

func TestRepeatedFieldBecomesOneByte(t *testing.T) {
	e := NewEncoder(4096)
	var n [3]int
	for i := range n {
		n[i] = len(e.Field(nil, httpmsg.UserAgent, []byte("user-agent"), []byte("grpc-go/1.80.0"), false))
	}
	if n[2] != 1 || n[0] < 10 || n[1] < 10 {
		t.Errorf("sizes %v, want literal, literal, index", n)
	}
}

func TestNeverRepeatingFieldIsNotIndexed(t *testing.T) {
	e := NewEncoder(4096)
	for i := range 100 {
		e.Field(nil, httpmsg.ContentLength, []byte("content-length"), []byte("12"), false)
		e.Field(nil, httpmsg.Other, []byte("x-n"), []byte(fmt.Sprint(i)), false)
		e.Field(nil, httpmsg.Authorization, []byte("authorization"), []byte("basic"), false)
	}
	if e.table.n != 0 {
		t.Errorf("%d entries", e.table.n)
	}
}

func TestBrokenBlocks(t *testing.T) {
	for name, block := range map[string]string{
		"index 0":             "\x80",
		"index beyond tables": "\xff\xff\xff\x7f",
		"integer of 6 bytes":  "\xff\xff\xff\xff\xff\xff\x01",
		"late size update":    "\x82\x20",
		"size above allowed":  "\x3f\xe2\x1f",
		"EOS in Huffman":      "\x00\x01a\x84\xff\xff\xff\xff",
		"zero padding":        "\x00\x01a\x81\x18",
		"literal cut":         "\x40\x05ab",
	} {
		d := NewDecoder(4096)
		if _, err := decodeAll(&d, []byte(block)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestCodingDoesNotAllocate(t *testing.T) {
	e, d := NewEncoder(4096), NewDecoder(4096)
	var block []byte
	fs := []xhpack.HeaderField{{Name: ":path", Value: "/a/b"}, {Name: "user-agent", Value: "x"}, {Name: "x-b", Value: "y"}, {Name: "date", Value: "z"}}
	var f Field
	run := func() {
		block = e.Start(block[:0])
		for i := range fs {
			block = e.Field(block, httpmsg.Other, []byte(fs[i].Name), []byte(fs[i].Value), false)
		}
		d.Start()
		for rest, ok := block, true; ok; {
			var err error
			if rest, ok, err = d.Next(rest, &f); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 5 {
		run()
	}
	if n := testing.AllocsPerRun(100, run); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte("\x82\x86\x84\x41\x0fwww.example.com"), []byte("\x82\xbe"))
	f.Add([]byte("\x20\x3f\x11\x40\x01a\x01b\xbe"), []byte("\xbe\x10\x01a\x83\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, one, two []byte) {
		x := xhpack.NewDecoder(4096, nil)
		x.SetMaxStringLength(1 << 20)
		d := NewDecoder(4096)
		for _, block := range [][]byte{one, two} {
			want, xerr := x.DecodeFull(block)
			got, err := decodeAll(&d, block)
			if err == errSize && xerr == nil {
				return // x/net lets a late update pass while its table is empty
			}
			if (err != nil) != (xerr != nil) {
				t.Fatalf("%q: error %v, x/net %v", block, err, xerr)
			}
			if err != nil {
				return
			}
			if !same(got, want) {
				t.Fatalf("%q: got %v want %v", block, got, want)
			}
		}
	})
}

func FuzzEncode(f *testing.F) {
	f.Add("x-a", "b", "x-a", "c", uint16(4096))
	f.Fuzz(func(t *testing.T, n1, v1, n2, v2 string, size uint16) {
		e := NewEncoder(4096)
		e.SetMax(uint32(size), 4096)
		d := NewDecoder(4096)
		x := xhpack.NewDecoder(4096, nil)
		for range 4 {
			b := e.Start(nil)
			b = e.Field(b, httpmsg.LookupString(n1), []byte(n1), []byte(v1), false)
			b = e.Field(b, httpmsg.LookupString(n2), []byte(n2), []byte(v2), true)
			want := []xhpack.HeaderField{{Name: n1, Value: v1}, {Name: n2, Value: v2}}
			if got, err := x.DecodeFull(b); err != nil || !same(got, want) {
				t.Fatalf("x/net: %v %v", got, err)
			}
			if got, err := decodeAll(&d, b); err != nil || !same(got, want) {
				t.Fatalf("own: %v %v", got, err)
			}
		}
	})
}

func BenchmarkEncodeTen(b *testing.B) {
	e := NewEncoder(4096)
	var block []byte
	names := [][]byte{[]byte("user-agent"), []byte("content-type"), []byte("te"), []byte("grpc-timeout"), []byte("x-forwarded-proto"), []byte("x-b"), []byte("x-c"), []byte("server"), []byte("x-d"), []byte("x-e")}
	ids := make([]httpmsg.ID, len(names))
	for i, n := range names {
		ids[i] = httpmsg.Lookup(n)
	}
	for b.Loop() {
		block = block[:0]
		for i, n := range names {
			block = e.Field(block, ids[i], n, []byte("some value of ours"), false)
		}
	}
}
