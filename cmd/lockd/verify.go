package main

import (
	"context"

	"github.com/urfave/cli/v3"

	"github.com/lockd/lockd"
)

func verifyCommand() *cli.Command {
	return &cli.Command{
		Name:      "verify",
		Category:  onFile,
		Usage:     "read all of a file, and say whether a program could open it",
		ArgsUsage: "FILE",
		Description: "Nothing is changed, and nothing printed if all is well.\n" +
			writable + "\n" +
			"The exit code says what is wrong, if something is: see lockd --help.",
		Flags: []cli.Flag{waitFlag()},
		Action: withFile(1, 1, func(
			_ context.Context, _ *cli.Command, args []string, opts *lockd.Options,
		) error {
			return advisedReading(lockd.Verify(args[0], opts))
		}),
	}
}
