package lockdui

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// How many characters of a key or a name a page shows: the key or name may have 16 KiB.
const (
	boxLength   = 20
	cellLength  = 80
	titleLength = 2_000
)

// printed returns a key or a name for people to read. It is in quotes, with escapes as in Go, if it
// is empty, if a part of it would not be seen, or if it could be taken for quoted text.
func printed(text string) string {
	if strings.HasPrefix(text, `"`) || strings.HasPrefix(text, " ") ||
		strings.HasSuffix(text, " ") || strings.Contains(text, "  ") || text == "" ||
		!utf8.ValidString(text) ||
		strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(text)
	}
	return text
}

// cell is a key or a name for a table.
func cell(text string) string { return cut(printed(text), cellLength) }

// title is a key or a name as the subject of a page.
func title(text string) string { return cut(printed(text), titleLength) }

// cut keeps both ends of a text that is too long, since names often differ in their last part.
func cut(text string, length int) string {
	if len(text) <= length {
		return text
	}
	runes := []rune(text)
	if len(runes) <= length {
		return text
	}
	half := (length - 1) / 2
	return string(runes[:half]) + "…" + string(runes[len(runes)-half:])
}

// meant returns the key or prefix that the text of a field stands for: the text, or what its quotes
// contain, so that a key can be typed as it is shown.
func meant(text string) string {
	if strings.HasPrefix(text, `"`) {
		if unquoted, err := strconv.Unquote(text); err == nil {
			return unquoted
		}
	}
	return text
}

// keyHref leads to the page of a key, whatever bytes it has.
func keyHref(key string) string { return "key?k=" + url.QueryEscape(key) }

// period is a length of time for people, in at most two units.
func period(d time.Duration) string {
	seconds := int64(d / time.Second)
	switch {
	case d < time.Millisecond:
		return "0 ms"
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case seconds < 60:
		return fmt.Sprintf("%d s", seconds)
	case seconds < 3600:
		return fmt.Sprintf("%d min %02d s", seconds/60, seconds%60)
	case seconds < 86400:
		return fmt.Sprintf("%d h %02d min", seconds/3600, seconds/60%60)
	}
	return fmt.Sprintf("%d d %02d h", seconds/86400, seconds/3600%24)
}

// setting is a length of time that a user has set, without rounding.
func setting(d time.Duration) string {
	if d%time.Second == 0 && d < time.Minute {
		return fmt.Sprintf("%d s", d/time.Second)
	}
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// cost is a length of time that was measured, in the unit that fits it once it is rounded.
func cost(d time.Duration) string {
	switch {
	case d < time.Millisecond-time.Microsecond/2:
		return fmt.Sprintf("%.0f µs", float64(d)/float64(time.Microsecond))
	case d < time.Second-time.Millisecond/200:
		return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond))
	}
	return fmt.Sprintf("%.2f s", d.Seconds())
}

// size is a number of bytes, in the largest unit of which it has at least 1 once it is rounded.
func size(n int64) string {
	const kilo = 1000
	switch {
	case n < kilo:
		return fmt.Sprintf("%d bytes", n)
	case n < kilo*kilo-kilo/20:
		return fmt.Sprintf("%.1f kB", float64(n)/kilo)
	case n < kilo*kilo*kilo-kilo*kilo/20:
		return fmt.Sprintf("%.1f MB", float64(n)/kilo/kilo)
	}
	return fmt.Sprintf("%.1f GB", float64(n)/kilo/kilo/kilo)
}

// figure is a number with its thousands apart.
func figure[T int | int64 | uint64](n T) string {
	digits := strconv.FormatUint(uint64(n), 10)
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "\u202f" + digits[at:] // a narrow space that does not break
	}
	return digits
}

// clockTime is an instant for people: the time of an instant of today, and the date of others too.
func clockTime(now, at time.Time) string {
	if at.Year() == now.Year() && at.YearDay() == now.YearDay() {
		return at.Format("15:04:05")
	}
	return at.Format("2006-01-02 15:04")
}

// age is how long ago an instant was. The page keeps the text current.
type age struct {
	Text   string
	Millis int64
	At     time.Time
}

func ageOf(now, at time.Time) age {
	d := max(0, now.Sub(at))
	return age{period(d), d.Milliseconds(), at}
}
