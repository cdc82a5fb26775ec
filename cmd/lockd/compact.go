package main

import (
	"context"
	"fmt"
	"os"

	"github.com/urfave/cli/v3"

	"github.com/lockd/lockd"
)

func compactCommand() *cli.Command {
	return &cli.Command{
		Name:      "compact",
		Category:  onFile,
		Usage:     "rewrite a file without the free pages in it",
		ArgsUsage: "FILE",
		Description: "The file is there, whole, at every moment.\n" + leftover + "\n" +
			"What it shrank from and to, in bytes, is printed.",
		Flags: []cli.Flag{waitFlag()},
		Action: withFile(1, 1, func(
			_ context.Context, cmd *cli.Command, args []string, opts *lockd.Options,
		) error {
			before, err := size(args[0])
			if err != nil {
				return err
			}
			if err := lockd.Compact(args[0], opts); err != nil {
				return advisedOnFile(err)
			}
			after, err := size(args[0])
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.Root().Writer, "%d %d\n", before, after)
			return err
		}),
	}
}

func size(path string) (int64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, fmt.Errorf("compact: %w", err)
	}
	return info.Size(), nil
}
