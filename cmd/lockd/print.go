package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"
	"unicode/utf8"
)

// printed returns a key, a name or an ID for people to read. Text that a terminal would act on, or
// that could pass for another line or column, is in quotes, with escapes as in Go; so is text that
// begins with a quote, so that it cannot be taken for quoted text.
func printed(text string) string {
	if strings.HasPrefix(text, `"`) || strings.HasPrefix(text, " ") ||
		strings.HasSuffix(text, " ") || strings.Contains(text, "  ") ||
		!utf8.ValidString(text) || strings.ContainsFunc(text, isControl) {
		return strconv.Quote(text)
	}
	return text
}

// isControl reports whether a character cannot simply be shown.
func isControl(r rune) bool { return !unicode.IsPrint(r) }

// cell returns a text for a column: a dash if it is empty.
func cell(text string) string {
	switch text {
	case "":
		return "-"
	case "-":
		return `"-"`
	}
	return printed(text)
}

// writeTable writes rows with their columns one below the other. Text goes through cell.
func writeTable(w io.Writer, rows [][]any) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		for i, value := range row {
			if i > 0 {
				fmt.Fprint(table, "\t")
			}
			if text, ok := value.(string); ok {
				value = cell(text)
			}
			fmt.Fprint(table, value)
		}
		fmt.Fprintln(table)
	}
	return table.Flush() // has the errors of all writes
}

// complain writes a line about an error. The text may contain text from a server, so what a
// terminal would act on is escaped. The errors of errors.Join stay lines.
func complain(w io.Writer, format string, args ...any) {
	var line strings.Builder
	for text := fmt.Sprintf(format, args...); text != ""; {
		r, size := utf8.DecodeRuneInString(text)
		if r != '\n' && isControl(r) || r == utf8.RuneError && size == 1 {
			quoted := strconv.Quote(text[:size])
			line.WriteString(quoted[1 : len(quoted)-1])
		} else {
			line.WriteString(text[:size])
		}
		text = text[size:]
	}
	// The library's errors begin with the name too.
	fmt.Fprintf(w, "lockd: %s\n", strings.TrimPrefix(line.String(), "lockd: "))
}
