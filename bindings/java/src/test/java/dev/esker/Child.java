package dev.esker;

import java.nio.file.Path;

/** Writes, says so, and ends without a close: by {@code exit}, or by whoever kills it. */
final class Child {
    private Child() {}

    public static void main(String[] arguments) throws Exception {
        Kvdb db = Temporary.open(Path.of(arguments[0]));
        Kvs kvs = db.kvsOrCreate("a");
        boolean durable = arguments[1].equals("kill");
        for (int n = 0; n < 500; n++) {
            kvs.put(Temporary.b("key" + n), new byte[100], durable);
            if (durable) {
                System.out.println(n);
            }
        }
        if (arguments[1].equals("exit")) {
            System.exit(7);
        }
        Thread.sleep(60_000);
    }
}
