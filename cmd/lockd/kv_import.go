package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"unicode/utf8"

	"github.com/hashicorp/consul/api"
	"github.com/urfave/cli/v3"

	"github.com/lockd/lockd/cmd/lockd/internal/lockclient"
)

func kvImportCommand() *cli.Command {
	return &cli.Command{
		Name:      "import",
		Usage:     "set keys from JSON, in the form of consul kv export",
		ArgsUsage: "[FILE]",
		Description: "Without FILE, or with -, it comes from standard input. " +
			"All of it is read before the first key is set.\n" +
			"Keys that it does not have stay; if a write is refused, those before it are done.",
		Flags: clientFlags(),
		Action: withClient(0, 1, func(
			ctx context.Context, cmd *cli.Command, c *lockclient.Client, args []string,
		) error {
			if err := noneEmpty(cmd, args); err != nil {
				return err
			}
			var keys []exported
			if err := readInput(cmd, args, func(r io.Reader) (err error) {
				keys, err = readExport(r)
				return err
			}); err != nil {
				return err
			}
			for i, k := range keys {
				pair := &api.KVPair{Key: k.Key, Flags: k.Flags, Value: k.Value}
				if err := c.Set(ctx, pair); err != nil {
					return fmt.Errorf("%d of %d keys are set: %w", i, len(keys), err)
				}
			}
			return nil
		}),
	}
}

// readExport reads a whole export, and refuses one that is cut off or has more behind it.
func readExport(r io.Reader) ([]exported, error) {
	text, err := io.ReadAll(r)
	var entries []json.RawMessage
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the export: %w", err)
	case len(bytes.TrimSpace(text)) == 0:
		return nil, errors.New("read the export: it is empty; one without keys is []")
	case !utf8.Valid(text): // the decoder would put other keys in the place of those that are not
		return nil, errors.New("read the export: it is not UTF-8, and so not JSON")
	}
	err = json.Unmarshal(text, &entries)
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return nil, fmt.Errorf("read the export: it is not JSON, or cut off: byte %d of %d: %v",
			syntax.Offset, len(text), err) // not %w: advised would take it for a server's
	}
	if err != nil || entries == nil {
		return nil, errors.New("read the export: it is not an array of keys, as kv export " +
			"writes it")
	}
	keys := make([]exported, len(entries))
	for i, entry := range entries {
		if keys[i], err = readEntry(entry); err != nil {
			return nil, fmt.Errorf("read the export: entry %d of %d: %w", i+1, len(entries), err)
		}
	}
	return keys, nil
}

// paired matches a text of JSON that has no half of a surrogate pair without its other half.
var paired = regexp.MustCompile(
	`(?i)^([^\\]|\\[^u]|\\u([^d].|d[0-7])..|\\ud[89ab]..\\ud[c-f]..)*$`)

// readEntry reads one key of an export.
func readEntry(text json.RawMessage) (exported, error) {
	var e struct{ Key, Flags, Value json.RawMessage }
	k := exported{}
	switch err := json.Unmarshal(text, &e); {
	case err != nil, e.Key != nil && json.Unmarshal(e.Key, &k.Key) != nil:
		return k, fmt.Errorf(`%.60s is not an object that has a text as its "key"`, text)
	case k.Key == "":
		return k, fmt.Errorf(`%.60s has no "key", or an empty one`, text)
	case !paired.Match(e.Key): // the decoder has put U+FFFD in the place of the half
		return k, fmt.Errorf(`key %.60s has half of a surrogate pair, which is not a character`,
			e.Key)
	case e.Flags != nil && json.Unmarshal(e.Flags, &k.Flags) != nil:
		return k, fmt.Errorf(`key %q: its "flags" %.40s are not a whole number from 0 to %d`,
			k.Key, e.Flags, uint64(math.MaxUint64))
	case e.Value != nil && json.Unmarshal(e.Value, &k.Value) != nil:
		return k, fmt.Errorf(`key %q: its "value" %.40s is not a text in base64`, k.Key, e.Value)
	}
	return k, nil
}
