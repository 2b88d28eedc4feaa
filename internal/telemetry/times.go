package telemetry

import (
	"strconv"
	"strings"
	"time"

	"sluice/internal/config"
)

// timeOp are the operators that tell times and durations.
func timeOp(dst []byte, it *config.FormatItem, r *Record) ([]byte, kind, bool) {
	switch it.Op {
	case "START_TIME", "START_TIME_LOCAL":
		return AppendTime(dst, r.Wall, it.Arg), text, true
	case "EMIT_TIME", "EMIT_TIME_LOCAL":
		return AppendTime(dst, r.Wall.Add(time.Duration(r.End-r.Start)), it.Arg), text, true
	case "DURATION":
		return ms(dst, r.Start, r.End)
	case "REQUEST_DURATION":
		return ms(dst, r.Start, r.RequestEnd)
	case "REQUEST_TX_DURATION":
		return ms(dst, r.Start, r.UpstreamSent)
	case "RESPONSE_DURATION":
		return ms(dst, r.Start, r.ResponseHead)
	case "RESPONSE_TX_DURATION":
		if r.ResponseHead == 0 || r.SendEnd == 0 {
			return dst, missing, true
		}
		return ms(dst, r.ResponseHead, r.SendEnd)
	case "DOWNSTREAM_HANDSHAKE_DURATION":
		if r.Conn.TLS == nil {
			return dst, missing, true
		}
		return ms(dst, r.Conn.Start, r.Conn.HandshakeDone)
	case "COMMON_DURATION":
		return commonDuration(dst, it, r)
	case "ROUNDTRIP_DURATION":
		return dst, missing, true
	}
	return dst, missing, false
}

func ms(dst []byte, from, to int64) ([]byte, kind, bool) {
	if to == 0 {
		return dst, missing, true
	}
	return strconv.AppendInt(dst, (to-from)/1e6, 10), number, true
}

// commonDuration is %COMMON_DURATION(FROM:TO:UNIT)%.
func commonDuration(dst []byte, it *config.FormatItem, r *Record) ([]byte, kind, bool) {
	parts := strings.Split(it.Arg, ":")
	if len(parts) < 3 && len(it.Path) == 3 {
		parts = it.Path
	}
	if len(parts) != 3 {
		return dst, missing, true
	}
	from, to := r.point(parts[0]), r.point(parts[1])
	if from == 0 || to == 0 || to < from {
		return dst, missing, true
	}
	unit := unitOf(parts[2])
	if unit == 0 {
		return dst, missing, true
	}
	return strconv.AppendInt(dst, (to-from)/unit, 10), number, true
}

func (r *Record) point(name string) int64 {
	switch name {
	case "DS_RX_BEG":
		return r.Start
	case "DS_RX_END":
		return r.RequestEnd
	case "US_TX_BEG":
		return r.UpstreamSend
	case "US_TX_END":
		return r.UpstreamSent
	case "US_RX_BEG":
		return r.ResponseHead
	case "US_RX_END":
		return r.ResponseEnd
	case "DS_TX_BEG":
		return r.SendHead
	case "DS_TX_END":
		return r.SendEnd
	}
	return 0
}

// AppendTime appends t by a strftime layout with Envoy's additions (%3f for
// milliseconds and so on); "" is ISO 8601 with milliseconds.
func AppendTime(dst []byte, t time.Time, form string) []byte {
	t = t.UTC()
	if form == "" {
		return t.AppendFormat(dst, "2006-01-02T15:04:05.000Z")
	}
	for i := 0; i < len(form); i++ {
		c := form[i]
		if c != '%' || i+1 == len(form) {
			dst = append(dst, c)
			continue
		}
		i++
		switch d := form[i]; {
		case d >= '1' && d <= '9' && i+1 < len(form) && form[i+1] == 'f':
			i++
			dst = fraction(dst, t, int(d-'0'))
		case d == 'E' && i+2 < len(form) && form[i+2] == 'S': // abseil's %E3S
			dst = t.AppendFormat(dst, "05")
			if n := form[i+1]; n >= '1' && n <= '9' {
				dst = fraction(append(dst, '.'), t, int(n-'0'))
			}
			i += 2
		default:
			dst = conversion(dst, t, d)
		}
	}
	return dst
}

func fraction(dst []byte, t time.Time, digits int) []byte {
	n := t.Nanosecond()
	for d := 8; d >= 9-digits; d-- {
		p := 1
		for range d {
			p *= 10
		}
		dst = append(dst, byte('0'+n/p%10))
	}
	return dst
}

// layout gives the time package's layout of a strftime conversion, "" for
// those that have none.
func layout(c byte) string {
	switch c {
	case 'Y':
		return "2006"
	case 'y':
		return "06"
	case 'm':
		return "01"
	case 'd':
		return "02"
	case 'e':
		return "_2"
	case 'H':
		return "15"
	case 'I':
		return "03"
	case 'M':
		return "04"
	case 'S':
		return "05"
	case 'p':
		return "PM"
	case 'b', 'h':
		return "Jan"
	case 'B':
		return "January"
	case 'a':
		return "Mon"
	case 'A':
		return "Monday"
	case 'z':
		return "-0700"
	case 'Z':
		return "MST"
	case 'T':
		return "15:04:05"
	case 'R':
		return "15:04"
	case 'F':
		return "2006-01-02"
	case 'D':
		return "01/02/06"
	case 'c':
		return "Mon Jan _2 15:04:05 2006"
	}
	return ""
}

func conversion(dst []byte, t time.Time, c byte) []byte {
	switch c {
	case 's':
		return strconv.AppendInt(dst, t.Unix(), 10)
	case 'f':
		return fraction(dst, t, 9)
	case 'j':
		d := t.YearDay()
		return append(dst, byte('0'+d/100), byte('0'+d/10%10), byte('0'+d%10))
	case 'u':
		return append(dst, byte('1'+(t.Weekday()+6)%7))
	case 'n':
		return append(dst, '\n')
	case 't':
		return append(dst, '\t')
	case '%':
		return append(dst, '%')
	}
	if l := layout(c); l != "" {
		return t.AppendFormat(dst, l)
	}
	return append(dst, '%', c)
}

func unitOf(s string) int64 {
	switch s {
	case "ms":
		return 1e6
	case "us":
		return 1e3
	case "ns":
		return 1
	}
	return 0
}
