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
		Action: func(_ context.Context, cmd *cli.Command) error {
			args, err := operands(cmd, 1, 1)
			if err != nil {
				return err
			}
			opts, err := openOptions(cmd)
			if err != nil {
				return err
			}
			return advisedReading(lockd.Verify(args[0], opts))
		},
	}
}
