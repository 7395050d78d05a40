"""ResNet-50 for images of 32x32, on random ones."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim


class Bottleneck(nn.Module):
    expansion = 4

    def __init__(self, in_planes, planes, stride=1):
        super().__init__()
        out_planes = planes * self.expansion
        self.conv1 = nn.Conv2d(in_planes, planes, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.conv3 = nn.Conv2d(planes, out_planes, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(out_planes)
        self.shortcut = nn.Sequential()
        if stride != 1 or in_planes != out_planes:
            self.shortcut = nn.Sequential(
                nn.Conv2d(in_planes, out_planes, 1, stride=stride, bias=False),
                nn.BatchNorm2d(out_planes),
            )

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        out = F.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        return F.relu(out + self.shortcut(x))


class ResNet50(nn.Module):
    def __init__(self, width=64, num_classes=10):
        super().__init__()
        self.in_planes = width
        self.conv1 = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.layer1 = self.make_layer(width, 3, stride=1)
        self.layer2 = self.make_layer(width * 2, 4, stride=2)
        self.layer3 = self.make_layer(width * 4, 6, stride=2)
        self.layer4 = self.make_layer(width * 8, 3, stride=2)
        self.fc = nn.Linear(width * 8 * Bottleneck.expansion, num_classes)

    def make_layer(self, planes, num_blocks, stride):
        layers = []
        for i in range(num_blocks):
            layers.append(Bottleneck(self.in_planes, planes, stride if i == 0 else 1))
            self.in_planes = planes * Bottleneck.expansion
        return nn.Sequential(*layers)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        x = F.adaptive_avg_pool2d(x, 1).flatten(1)
        return self.fc(x)


def make_batches(batch_size, count):
    images = torch.randn(count, batch_size, 3, 32, 32)
    labels = torch.randint(0, 10, (count, batch_size))
    return list(zip(images, labels))


def train(model, batches, criterion, optimizer, device, steps, log_every, use_amp):
    model.train()
    for step in range(steps):
        images, labels = batches[step % len(batches)]
        images, labels = images.to(device), labels.to(device)
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=use_amp):
            outputs = model(images)
            loss = criterion(outputs, labels)
        loss.backward()
        optimizer.step()
        if step % log_every == 0:
            correct = outputs.argmax(1).eq(labels).sum().item()
            print(f"step {step}: loss {loss.item():.3f}, {correct} of {labels.size(0)} right")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--steps", type=int, default=391)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--log-every", type=int, default=100)
    args = parser.parse_args()

    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    batches = make_batches(args.batch_size, 8)
    model = ResNet50(args.width).to(device)
    criterion = nn.CrossEntropyLoss()
    optimizer = optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=5e-4)
    use_amp = device.type == "cuda"
    train(model, batches, criterion, optimizer, device, args.steps, args.log_every, use_amp=use_amp)


if __name__ == "__main__":
    main()
