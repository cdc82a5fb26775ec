package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/urfave/cli/v3"

	"github.com/lockd/lockd/cmd/lockd/internal/consulclient"
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
			ctx context.Context, cmd *cli.Command, c *consulclient.Client, args []string,
		) error {
			var keys []exported
			read := func(r io.Reader) (err error) {
				keys, err = readExport(r)
				return err
			}
			var err error
			if len(args) == 0 || args[0] == standard {
				err = read(cmd.Root().Reader)
			} else {
				err = readFrom(args[0], read)
			}
			if err != nil {
				return err
			}
			for i, k := range keys {
				opts := consulclient.PutOptions{Flags: k.Flags}
				if _, err := c.Put(ctx, k.Key, k.Value, opts); err != nil {
					return fmt.Errorf("%d of %d keys are set: %w", i, len(keys), err)
				}
			}
			return nil
		}),
	}
}

// readExport reads the whole of an export, and refuses one that is cut or has more behind it.
func readExport(r io.Reader) ([]exported, error) {
	d := json.NewDecoder(r)
	var keys []exported
	if err := d.Decode(&keys); err != nil {
		return nil, fmt.Errorf("read the export: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("read the export: there is something behind its end")
	}
	for i, k := range keys {
		if k.Key == "" {
			return nil, fmt.Errorf("read the export: key %d of %d is empty", i+1, len(keys))
		}
	}
	return keys, nil
}
