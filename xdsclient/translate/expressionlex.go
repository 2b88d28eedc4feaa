package translate

import (
	"strconv"
	"strings"
)

// token is a word of a CEL expression: kind 'n' is a number, 's' a text with its
// quotes taken off, 'i' a name, 'o' an operator, 0 the end.
type token struct {
	kind byte
	text string
}

// operators of two characters; all others have one.
const longOperators = " && || == != <= >= "

// lex cuts an expression into tokens; "" is the first thing that is none.
func lex(in string) (out []token, bad string) {
	for in = strings.TrimLeft(in, " \t\r\n"); in != ""; in = strings.TrimLeft(in, " \t\r\n") {
		n, t := 0, token{}
		c := in[0]
		switch {
		case quoted(in):
			var ok bool
			if t.text, n, ok = cutText(in); !ok {
				return nil, in
			}
			t.kind = 's'
		case isNameByte(c) && !isDigit(c):
			for n < len(in) && isNameByte(in[n]) {
				n++
			}
			t = token{'i', in[:n]}
		case isDigit(c) || c == '.' && len(in) > 1 && isDigit(in[1]):
			n = numberLength(in)
			t = token{'n', in[:n]}
		case len(in) > 1 && strings.Contains(longOperators, " "+in[:2]+" "):
			n, t = 2, token{'o', in[:2]}
		case strings.IndexByte("<>!-+*/%?:.,()[]", c) >= 0:
			n, t = 1, token{'o', in[:1]}
		default:
			return nil, in
		}
		out, in = append(out, t), in[n:]
	}
	return append(out, token{}), ""
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isNameByte(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || isDigit(c)
}

// numberLength is how much of in is a number: decimal or hexadecimal, with a
// fraction, an exponent or a u at the end.
func numberLength(in string) int {
	n := 0
	for n < len(in) && (isNameByte(in[n]) || in[n] == '.' ||
		(in[n] == '-' || in[n] == '+') && n > 0 && (in[n-1]|0x20) == 'e' && !strings.HasPrefix(in, "0x")) {
		n++
	}
	return n
}

// quoted reports whether a text begins here; r before it leaves escapes alone.
func quoted(in string) bool {
	rest := strings.TrimLeft(in[:1], "rR") + in[1:]
	return rest != "" && (rest[0] == '"' || rest[0] == '\'')
}

// cutText gives the text that begins here and how long it is with its quotes.
func cutText(in string) (text string, n int, ok bool) {
	raw := in[0] == 'r' || in[0] == 'R'
	if raw {
		n++
	}
	quote := in[n : n+1]
	if long := strings.Repeat(quote, 3); strings.HasPrefix(in[n:], long) {
		quote = long
	}
	n += len(quote)
	var b strings.Builder
	for n < len(in) {
		if strings.HasPrefix(in[n:], quote) {
			return b.String(), n + len(quote), true
		}
		if raw || in[n] != '\\' {
			if in[n] == '\n' && len(quote) == 1 {
				return "", 0, false
			}
			b.WriteByte(in[n])
			n++
			continue
		}
		if rest := in[n+1:]; rest != "" && strings.IndexByte("?`'\"", rest[0]) >= 0 {
			b.WriteByte(rest[0])
			n += 2
			continue
		}
		r, _, tail, err := strconv.UnquoteChar(in[n:], 0)
		if err != nil {
			return "", 0, false
		}
		b.WriteRune(r)
		n = len(in) - len(tail)
	}
	return "", 0, false
}
